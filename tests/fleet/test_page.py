"""docs/fleet.md names commands, options, keys and files that exist."""

import re
from base64 import b64encode
from pathlib import Path

from tests.test_operations import followed, spoken

from orderbridge import config

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "fleet.md").read_text("utf-8")


def test_every_command_and_option_exists():
    said = [words.split() for words in spoken(TEXT) if words.split()]
    assert len(said) > 10
    for words in said:
        if words[0] in {"for", "process", "processes"}:
            continue
        command, rest = followed([word for word in words if not word.startswith((">", "/"))])
        options = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= options, words


def test_the_configuration_loads(tmp_path: Path):
    (block,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "key").write_bytes(b64encode(bytes(32)))
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "orderbridge.toml").write_text(block.replace("/etc/orderbridge/master.key", f"{tmp_path}/key"))
    settings = config.load(tmp_path / "orderbridge.toml", environ={})
    assert settings.fleet.from_database
    assert "host=db-a,db-b" in settings.database.url


def test_every_file_that_is_named_is_there():
    named = set(re.findall(r"`((?:deploy|docs)/[\w./-]+)`", TEXT)) | {"benchmarks/failover.py"}
    assert not [name for name in named if not (DOCS.parent / name).exists()]
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert not [link for link in links if not (DOCS / link).resolve().exists()]
