"""Configurations as text, valid by default, and the errors of `load` for invalid ones."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from orderbridge.config import load
from orderbridge.errors import ConfigError
from orderbridge.texts import sentence

APP, REST = "app-secret-of-the-test", "rest-secret-of-the-test"
URL = "https://api.example.com"
NO_SECRETS = '[[accounts]]\nname = "kadikoy"\n'

Write = Callable[..., Path]


def account(name: str = "kadikoy", rest: str = REST, more: str = "") -> str:
    return f'[[accounts]]\nname = "{name}"\napp_secret_key = "{APP}"\nrest_secret_key = "{rest}"\n{more}\n'


def document(*, top="", marketplace="", more="", url=URL, accounts: str | None = None) -> str:
    accounts = account() if accounts is None else accounts
    return f'{top}\n[marketplace]\nbase_url = "{url}"\n{marketplace}\n{more}\n{accounts}'


def problems(file: Path | None, environ: dict[str, str] | None = None) -> str:
    """What a technician reads. pydantic's own error holds the input, so it must not be chained."""
    with pytest.raises(ConfigError) as caught:
        load(file, environ=environ or {})
    assert not isinstance(caught.value.__context__, ValidationError)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return sentence(caught.value)
