"""`init` asks for the settings, tries each answer at once, and writes the configuration.

It does not ask for a setting that is given as an option. Without a terminal it asks nothing: a missing setting is an
error. So is a setting that does not work, unless --untested is given. It writes nothing before all settings are known.
"""

import contextlib
import json
import os
import pwd
import secrets
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from orderbridge.cli.common import Context, confirm, pass_context
from orderbridge.cli.line import restaurants_of
from orderbridge.config import Settings
from orderbridge.config.keys import SECRETS
from orderbridge.config.loading import SYSTEM_FILE, in_words
from orderbridge.errors import ConfigError, LoginRefused, MarketplaceError, NoFile, OrderbridgeError
from orderbridge.net.connector import survey
from orderbridge.store import workers
from orderbridge.texts import LANGUAGES, language_of, line_remedy, say, sentence, speak

SANDBOX = {
    "base_url": "https://127.0.0.1:8443",
    "ca_file": "sandbox-data/ca.pem",
    "account": "kadikoy",
    "app_secret_key": "sandbox-app-secret",
    "rest_secret_key": "sandbox-kadikoy-secret",
}
OPTIONS = {
    "base_url": "--base-url",
    "account": "--account",
    "app_secret_key": "--app-secret-file",
    "rest_secret_key": "--rest-secret-file",
}
LONGEST_SECRET = 10_000
PRIVATE = 0o600
READABLE = 0o644  # for the systemd service: its user does not exist yet, and systemd passes the secrets
SECRETS_FOLDER = "secrets"
UNITS = Path("/etc/systemd/system")
STATE_FILE = "sqlite:////var/lib/orderbridge/orderbridge.db"


# ---- what is written -------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Draft:
    """The answers, and the files to write. `values` are by key; `owner` is set if root writes for another user.

    The files are a commented configuration, one file for each secret, and for systemd a drop-in that names the secrets.
    Either all of them are written or none. No file is overwritten, even if two `init` run at once. Only the owner can
    read a secret.
    """

    file: Path
    language: str
    owner: str | None = None
    values: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_for_systemd(self) -> bool:
        """Whether the systemd service will use it. Its user is made at each start, so the files belong to root."""
        is_system = self.file.parent == SYSTEM_FILE.parent and UNITS.is_dir()
        return is_system and os.geteuid() == 0 and self.owner is None

    @property
    def ca_file(self) -> str | None:
        """The CA file, or None if the answer was "-"."""
        return None if self.values["ca_file"] == "-" else self.values["ca_file"]

    @property
    def drop_in(self) -> Path:
        """The file that makes systemd pass the secrets to the service."""
        return UNITS / "orderbridge.service.d" / "credentials.conf"

    def settings(self) -> Settings:
        """The settings as the program would read them. Raises pydantic's ValidationError."""
        tree: dict[str, Any] = {
            "language": self.language,
            "marketplace": {"base_url": self.values["base_url"], "ca_file": self.ca_file},
            "database": {"url": self.values["database"]},
            "accounts": [{"name": self.values["account"], **{key: self.values[key] for key in SECRETS}}],
        }
        return Settings.model_validate(tree, context=self.file.parent)

    def secret_file(self, key: str) -> Path:
        """The secret's file: beside the configuration, or in the folder that systemd reads."""
        folder = self.file.parent / SECRETS_FOLDER if self.is_for_systemd else self.file.parent
        return folder / f"{self.values['account']}.{key}"

    def write(self) -> None:
        """Write the secrets first and the configuration last. Raises ConfigError, and then removes what was written."""
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
        """The configuration file, with a comment on each key in the chosen language."""
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
    return json.dumps(text, ensure_ascii=False)  # for our values the same as a basic string in TOML


def _comment(key: str) -> list[str]:
    return [f"# {line}" for line in say(key).splitlines()]


def _make(path: Path, text: str, mode: int, owner: str | None) -> None:
    """Write a temporary file and link it to its final name. Raises ConfigError if that name exists."""
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


# ---- what is asked ---------------------------------------------------------------------------------------------------


@click.command()
@click.option("--language", type=click.Choice(LANGUAGES), help="Language for cashiers and technicians.")
@click.option("--base-url", help="The address that the marketplace gave you.")
@click.option("--ca-file", help="A certificate (PEM) to trust besides the system's.")
@click.option("--account", help="A short name of a-z, 0-9, _ . -")
@click.option("--app-secret-file", help="A file with the app_secret_key; -: standard input.")
@click.option("--rest-secret-file", help="A file with the rest_secret_key; both -: two lines.")
@click.option("--database", help="Where the tables will be.  [default: sqlite:///orderbridge.db]")
@click.option("--owner", help="The files' owner, if root writes them.")
@click.option("--sandbox", is_flag=True, help="Use the values of `orderbridge sandbox`.")
@click.option("--untested", is_flag=True, help="Write it even if something does not work yet.")
@click.option("--yes", is_flag=True, help="Ask nothing.")
@pass_context
def init(
    context: Context,
    /,
    language: str | None,
    app_secret_file: str | None,
    rest_secret_file: str | None,
    owner: str | None,
    *,
    sandbox: bool,
    untested: bool,
    yes: bool,
    **given: str | None,
) -> None:
    """Write a configuration."""
    speak(language or language_of(os.environ))
    file = Path(context.config_file or os.environ.get("ORDERBRIDGE_CONFIG") or "orderbridge.toml").absolute()
    _refuse_place(file, owner)
    asking = Asking(asks=not yes and sys.stdin.isatty(), untested=untested)
    chosen = language or asking.language()
    speak(chosen)
    files = {"app_secret_key": app_secret_file, "rest_secret_key": rest_secret_file}
    given |= {key: _read_secret(name) for key, name in files.items() if name is not None}
    values = {key: value for key, value in given.items() if value}
    draft = Draft(file=file, language=chosen, owner=owner, values=SANDBOX | values if sandbox else values)
    asking.fill(draft)
    draft.write()
    _show_next_step(draft)


def _refuse_place(file: Path, owner: str | None) -> None:
    """Refuse an unusable file or owner before the first question."""
    if os.path.lexists(file):
        raise ConfigError("init.is_there", file=file)
    if not file.parent.is_dir() or not os.access(file.parent, os.W_OK):
        raise ConfigError("init.cannot_write", file=file, reason=say("init.folder", folder=file.parent))
    if owner is not None:
        try:
            pwd.getpwnam(owner)
        except KeyError:
            raise click.UsageError(say("init.no_user", owner=owner)) from None


def _read_secret(file: str) -> str:
    try:
        text = sys.stdin.readline() if file == "-" else Path(file).read_text("utf-8-sig")[:LONGEST_SECRET]
    except (OSError, ValueError) as error:
        raise ConfigError("init.cannot_read", file=file, reason=error) from None
    return text.removeprefix("\ufeff").strip()


class Asking:
    """Asks and tries the answers. Without a terminal, a missing or a failing answer is an error."""

    def __init__(self, *, asks: bool, untested: bool) -> None:
        self._asks = asks
        self._untested = untested
        self._failed: dict[str, str] = {}  # answers that did not work

    def language(self) -> str:
        """Ask for the language. A wrong answer gets no error message: its language is not known yet."""
        chosen = language_of(os.environ)
        while self._asks:
            chosen = click.prompt(f"Dil / language ({', '.join(LANGUAGES)})", default=chosen, err=True)
            if chosen in LANGUAGES:
                break
            chosen = language_of(os.environ)
        return chosen

    def fill(self, draft: Draft) -> None:
        """Ask for each setting until its value works."""
        missing = [option for key, option in OPTIONS.items() if key not in draft.values]
        if missing and not self._asks:
            raise click.UsageError(say("init.missing", options=", ".join(missing)))
        for keys, attempt in STEPS:
            while not self._works(draft, keys, attempt):
                pass

    def _works(self, draft: Draft, keys: Sequence[str], attempt: Callable[[Draft], object]) -> bool:
        """Ask for missing values and try them. False: ask again. With --untested a failure counts as success."""
        for key in keys:
            draft.values[key] = draft.values.get(key) or self._ask(draft, key)
        try:
            attempt(draft)
        except (OrderbridgeError, MarketplaceError) as error:
            is_invalid = isinstance(error, ConfigError)
            remedy = f". {line_remedy(error)}" if isinstance(error, MarketplaceError) else ""
            problem = sentence(error) + remedy
            if self._untested and not is_invalid:
                click.echo(say("init.goes_on", problem=problem), err=True)
                return True
            if not self._asks:
                raise
            click.echo(click.style(problem, fg="red"), err=True)
            if not is_invalid and not confirm(say("init.again"), default=True):
                return True
            if keys != SECRETS or isinstance(error, LoginRefused | ConfigError):
                self._failed |= {key: draft.values.pop(key) for key in keys}
            return False
        return True

    def _ask(self, draft: Draft, key: str) -> str:
        if key in SECRETS:
            return str(click.prompt(key, hide_input=True, err=True)).strip()
        is_sandbox = draft.values.get("base_url") == SANDBOX["base_url"]
        has_certificate = self._asks and is_sandbox and (draft.file.parent / SANDBOX["ca_file"]).exists()
        likely = {
            **SANDBOX,
            "ca_file": SANDBOX["ca_file"] if has_certificate else "-",
            "database": STATE_FILE if draft.is_for_systemd else "sqlite:///orderbridge.db",
            **self._failed,
        }
        default = likely[key]
        return str(click.prompt(say(f"init.{key}"), default=default, err=True)).strip() if self._asks else default


def _checked(draft: Draft) -> Context:
    """A context with these settings; those not asked yet get placeholders. Raises ConfigError."""
    later = {"account": "x", "app_secret_key": "x", "rest_secret_key": "y", "database": "sqlite:////nowhere"}
    try:
        return Context(replace(draft, values=later | draft.values).settings())
    except ValidationError as error:
        raise ConfigError("config.invalid", problems=in_words(error)) from None


def _try_line(draft: Draft) -> None:
    market = _checked(draft).settings.marketplace

    async def go() -> None:
        async for step in survey(market.base_url, ca_file=market.ca_file, timeout_s=market.timeout_seconds):
            if step.error is not None:
                raise step.error

    workers.run(go())
    click.echo(say("init.line_works", base_url=market.base_url), err=True)


def _try_login(draft: Draft) -> None:
    context = _checked(draft)
    names = workers.run(restaurants_of(context, None, context.settings.accounts[0]))
    click.echo(say("init.login_works", restaurants=names or say("check.no_restaurants")), err=True)


def _try_database(draft: Draft) -> None:
    context = _checked(draft)
    if draft.is_for_systemd and draft.values["database"] == STATE_FILE:
        return  # systemd creates that folder at the first start
    with contextlib.suppress(NoFile):  # the daemon creates it
        context.database().close()
    click.echo(say("init.database_works"), err=True)


def _show_next_step(draft: Draft) -> None:
    """Print what was written and the next step."""
    folder = draft.secret_file("x").parent
    click.echo(say("init.written", file=draft.file, folder=folder))
    if draft.is_for_systemd:
        click.echo(say("init.next_unit", drop_in=draft.drop_in, folder=folder))
    else:
        click.echo(say("init.next", file=draft.file))


STEPS = (
    (("base_url", "ca_file"), _try_line),
    (("account",), _checked),
    (SECRETS, _try_login),
    (("database",), _try_database),
)
COMMANDS = (init,)
