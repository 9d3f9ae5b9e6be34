"""The configuration that `init` writes: a commented file, a file for each secret, for the unit a drop-in that names them.

- All of it is there, or nothing.
- Nothing is overwritten, not even by another `init` at the same moment.
- Nobody but the owner reads a secret, not even for a moment.
"""

import json
import os
import pwd
import secrets
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orderbridge.config import Settings
from orderbridge.config.keys import SECRETS
from orderbridge.config.loading import SYSTEM_FILE
from orderbridge.errors import ConfigError
from orderbridge.texts import say

PRIVATE = 0o600
READABLE = 0o644  # for a service whose user does not exist yet, and whose secrets systemd hands over
SECRETS_FOLDER = "secrets"
UNITS = Path("/etc/systemd/system")
STATE_FILE = "sqlite:////var/lib/orderbridge/orderbridge.db"


@dataclass(slots=True, kw_only=True)
class Draft:
    """What was answered. `values`: by key. `owner`: whose the files will be, for root."""

    file: Path
    language: str
    owner: str | None = None
    values: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_for_systemd(self) -> bool:
        """Whether it is the unit's: its user is made at each start, so the files stay root's."""
        is_system = self.file.parent == SYSTEM_FILE.parent and UNITS.is_dir()
        return is_system and os.geteuid() == 0 and self.owner is None

    @property
    def ca_file(self) -> str | None:
        """None: "-" was answered."""
        return None if self.values["ca_file"] == "-" else self.values["ca_file"]

    @property
    def drop_in(self) -> Path:
        """What has systemd hand the secrets over to the service."""
        return UNITS / "orderbridge.service.d" / "credentials.conf"

    def settings(self) -> Settings:
        """As the program would read them. Raises pydantic's ValidationError."""
        tree: dict[str, Any] = {
            "language": self.language,
            "marketplace": {"base_url": self.values["base_url"], "ca_file": self.ca_file},
            "database": {"url": self.values["database"]},
            "accounts": [{"name": self.values["account"], **{key: self.values[key] for key in SECRETS}}],
        }
        return Settings.model_validate(tree, context=self.file.parent)

    def secret_file(self, key: str) -> Path:
        """Where the secret will be: beside the configuration, or where systemd takes it from."""
        folder = self.file.parent / SECRETS_FOLDER if self.is_for_systemd else self.file.parent
        return folder / f"{self.values['account']}.{key}"

    def write(self) -> None:
        """Secrets first, the configuration last. Raises ConfigError; then nothing of it is left."""
        try:
            with ExitStack() as undo:
                if self.is_for_systemd:
                    (self.file.parent / SECRETS_FOLDER).mkdir(mode=0o700, exist_ok=True)
                for key in SECRETS:
                    _make(self.secret_file(key), self.values[key], PRIVATE, self.owner)
                    undo.callback(self.secret_file(key).unlink)
                if self.is_for_systemd:
                    self.drop_in.parent.mkdir(exist_ok=True)
                    lines = [f"LoadCredential={self.secret_file(key).name}:{self.secret_file(key)}" for key in SECRETS]
                    _make(self.drop_in, "\n".join(["[Service]", *lines, ""]), READABLE, None)
                    undo.callback(self.drop_in.unlink)
                _make(self.file, self.text(), READABLE if self.is_for_systemd else PRIVATE, self.owner)
                undo.pop_all()
        except OSError as error:
            raise ConfigError("init.cannot_write", file=error.filename, reason=error.strerror or error) from error

    def text(self) -> str:
        """The file, with a comment on each key in the language that was chosen."""
        ca = "# ca_file = ..." if self.ca_file is None else f"ca_file = {_quoted(self.ca_file)}"
        files = [f"{key}_file = {_quoted(self.secret_file(key).name)}" for key in SECRETS if not self.is_for_systemd]
        lines = [
            *_comment("init.about"),
            f"language = {_quoted(self.language)}",
            "",
            "[marketplace]",
            *_comment("init.about_base_url"),
            f"base_url = {_quoted(self.values['base_url'])}",
            *_comment("init.about_ca_file"),
            ca,
            "",
            "[database]",
            *_comment("init.about_database"),
            f"url = {_quoted(self.values['database'])}",
            "",
            "[[accounts]]",
            *_comment("init.about_account"),
            f"name = {_quoted(self.values['account'])}",
            *_comment("init.about_credentials" if self.is_for_systemd else "init.about_secrets"),
            *files,
        ]
        return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # what TOML's basic strings are, for all that we take


def _comment(key: str) -> list[str]:
    return [f"# {line}" for line in say(key).splitlines()]


def _make(path: Path, text: str, mode: int, owner: str | None) -> None:
    """A whole file under a name of its own, which then gets its name, unless something is there."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fchmod(descriptor, mode)
            if owner is not None:
                entry = pwd.getpwnam(owner)
                os.fchown(descriptor, entry.pw_uid, entry.pw_gid)
            os.fsync(descriptor)
        try:
            os.link(beside, path)
        except FileExistsError:
            raise ConfigError("init.is_there", file=path) from None
    finally:
        beside.unlink()
