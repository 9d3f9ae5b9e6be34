"""config.example.toml is valid as it is, and describes every key correctly."""

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from tests.config.documents import Write, problems

from orderbridge.config import Settings, load
from orderbridge_sandbox.scenery import DEFAULT_SCENERY

EXAMPLE = Path(__file__).parents[2] / "config.example.toml"


def test_the_example_works_for_the_sandbox_and_reaches_every_restaurant(write: Write, tmp_path: Path) -> None:
    """Every order of the sandbox arrives through exactly one account, whichever restaurant it is for."""
    write("a certificate", "sandbox-data/ca.pem")
    settings = load(write(EXAMPLE.read_text("utf-8")), environ={})
    assert settings.marketplace.base_url == "https://127.0.0.1:8443"
    assert settings.marketplace.ca_file == tmp_path / "sandbox-data/ca.pem"
    app = {one.app_secret_key.get_secret_value() for one in settings.accounts}
    secrets = {one.name: one.rest_secret_key.get_secret_value() for one in settings.accounts}
    named = ("kadikoy", "besiktas", "chain")
    assert (app, secrets) == ({"sandbox-app-secret"}, {name: f"sandbox-{name}-secret" for name in named})
    served = [one for one in DEFAULT_SCENERY.accounts if one.rest_secret_key in secrets.values()]
    reached = [key for one in served for key in one.restaurant_ids]
    assert sorted(reached) == sorted(restaurant.id for restaurant in DEFAULT_SCENERY.restaurants)


def test_the_example_names_the_remedy_when_the_sandbox_has_not_run_yet(write: Write) -> None:
    error = problems(write(EXAMPLE.read_text("utf-8")))
    assert "marketplace.ca_file" in error and "start `orderbridge sandbox` first" in error


def keys(model: type[BaseModel]) -> dict[str, Any]:
    """Every key with its default, tables within tables included."""
    found: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        found[name] = info.default
        for part in (info.annotation, *getattr(info.annotation, "__args__", ())):
            if isinstance(part, type) and issubclass(part, BaseModel):
                found |= keys(part)
    return found


def test_the_example_mentions_every_key() -> None:
    lines = [line.removeprefix("# ") for line in EXAMPLE.read_text("utf-8").splitlines()]
    headings = ("{} =", "[{}]", "[[{}]]", "[[accounts.{}]]")
    begins = {key: tuple(heading.format(key) for heading in headings) for key in keys(Settings)}
    assert [key for key, begin in begins.items() if not any(line.startswith(begin) for line in lines)] == []


def test_the_defaults_that_the_example_shows_are_the_defaults(write: Write) -> None:
    """Keys without a default have a sample value. All others must change nothing when they are uncommented."""
    sample = r"\w+_file|auto_accept_minutes|auto_accept_steps|needs_payment_status_id|list_limit|id|hosts|command"
    sample += "|ping_url|certificate|certificate_key|master_key"
    text = EXAMPLE.read_text("utf-8")
    uncommented = re.sub(rf"(?m)^# (?!({sample}) )(\w+ = .*)$", r"\2", text)
    assert uncommented.count("\n# ") < text.count("\n# ")
    write("a certificate", "sandbox-data/ca.pem")
    assert load(write(uncommented), environ={}).model_dump() == load(write(text), environ={}).model_dump()
