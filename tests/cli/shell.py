"""Shared by the tests of the command line: the result of a command, and configurations as text."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

APP, REST = "sandbox-app-secret", "sandbox-kadikoy-secret"
NOBODY = "https://127.0.0.1:1"


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ended]
Configure = Callable[..., None]


def account(name: str = "kadikoy", rest: str = REST) -> str:
    return f'[[accounts]]\nname = "{name}"\napp_secret_key = "{APP}"\nrest_secret_key = "{rest}"\n'


POS_DB = 'url = "sqlite:///pos.db"'


def document(
    *, base_url: str = NOBODY, marketplace: str = "", database: str = POS_DB, more: str = "", accounts: str = ""
) -> str:
    """A configuration. Its service does not run, unless the test starts one."""
    if "[web]" not in more:  # the usual port may be another program's
        more += '\n[web]\nlisten = ""\n'
    market = f'language = "en"\n[marketplace]\nbase_url = "{base_url}"\n{marketplace}\n'
    return f"{market}[database]\n{database}\n{more}\n{accounts or account()}"
