"""Which accounts there are, and which of them this process works for.

A daemon that works alone works for all of them. One of several replicas works for those of its buckets, and knows the
others: what concerns them is somebody else's, and no account of theirs is "not configured".
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Self

from sqlalchemy import Connection

from orderbridge import config
from orderbridge.jobs.account import Account


class Roster:
    """All accounts by name, and those that are at work here. Both are looked at by many, and changed in place."""

    def __init__(self, known: Iterable[config.Account] = ()) -> None:
        # None: it cannot be read; whose it is, is known all the same
        self.known: dict[str, config.Account | None] = {account.name: account for account in known}
        self.at_work: dict[str, Account] = {}
        self.is_lead = True  # what is there once for all is ours to do, and rows that name no account
        self.owns: Callable[[str], bool] = lambda _: True  # rows of an account of that name, when nobody knows it
        self.is_current: Callable[[Connection], bool] = lambda _: True  # whether `known` is what the database has now
        self.version = 0  # grows with each change

    @classmethod
    def of(cls, accounts: Mapping[str, Account]) -> Self:
        """These are all there are, and all are at work here."""
        roster = cls()
        roster.known = {name: account.settings for name, account in accounts.items()}
        roster.at_work = dict(accounts)
        return roster

    def changed(self) -> None:
        """To be called after a change: what was decided by the roster is decided anew."""
        self.version += 1
