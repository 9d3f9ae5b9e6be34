"""Shared by the commands on accounts in the database: master keys, validated accounts, and checks."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from orderbridge.errors import ConfigError, Message
from orderbridge.texts import say

if TYPE_CHECKING:
    from orderbridge.config import Account, Settings
    from orderbridge_fleet.account_settings import MasterKeys


def keys_of(settings: "Settings") -> "MasterKeys":
    """The configured master keys. Raises ConfigError where there is none."""
    from orderbridge_fleet.account_settings import MasterKeys

    if not settings.fleet.master_keys or "" in settings.source.without_secrets:
        raise ConfigError("accounts.no_key")
    return MasterKeys(settings.fleet.master_keys)


def made(settings: "Settings", values: dict[str, Any]) -> "Account":
    """An account with these values, at the configured address. Raises ConfigError, which shows no value."""
    from pydantic import ValidationError

    from orderbridge.config import Account
    from orderbridge.config.loading import in_words

    try:
        account = Account(**values)
    except ValidationError as error:
        raise ConfigError("config.invalid", problems=in_words(error)) from None
    return account.at(settings.marketplace.base_url)


def clash(settings: "Settings", account: "Account") -> Message | None:
    """Why the account conflicts with one of the configuration file; None if it does not.

    The same account in both is permitted, while it is moved. Until then the file takes precedence.
    """
    for one in settings.accounts:
        if (one.name, one.fingerprint) == (account.name, account.fingerprint):
            return None
        if one.name == account.name:
            return Message("accounts.in_file", name=one.name)
        if one.fingerprint == account.fingerprint:
            return Message("accounts.taken", name=account.name, other=one.name)
    return None


def say_not_read(settings: "Settings", names: Iterable[str]) -> None:
    """Print why no daemon uses the written accounts yet."""
    in_file = {one.name for one in settings.accounts} & set(names)
    if in_file:
        click.echo(say("accounts.moves", count=len(in_file)), err=True)
    if not settings.fleet.from_database:
        click.echo(say("accounts.not_read"), err=True)
