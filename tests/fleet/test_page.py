"""The pages about fleets say what there is, and the same in both languages."""

import re
import tomllib
from base64 import b64encode
from pathlib import Path

import pytest
from tests.test_operations import BLOCK, followed, spoken

from orderbridge import config

DOCS = Path(__file__).parents[2] / "docs"
TEXTS = {"en": (DOCS / "fleet.md").read_text("utf-8"), "tr": (DOCS / "filo.md").read_text("utf-8")}
each = pytest.mark.parametrize("code", TEXTS)


@each
def test_every_command_and_option_exists(code: str):
    said = [words.split() for words in spoken(TEXTS[code]) if words.split()]
    assert len(said) > 10
    for words in said:
        if not words[0].isascii() or words[0] in {"ile", "for", "process", "processes"}:
            continue
        command, rest = followed([word for word in words if not word.startswith((">", "/"))])
        options = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= options, words


@each
def test_the_configuration_loads(code: str, tmp_path: Path):
    (block,) = re.findall(r"```toml\n(.*?)```", TEXTS[code], re.DOTALL)
    assert tomllib.loads(block)["language"] == code
    (tmp_path / "key").write_bytes(b64encode(bytes(32)))
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "orderbridge.toml").write_text(block.replace("/etc/orderbridge/master.key", f"{tmp_path}/key"))
    settings = config.load(tmp_path / "orderbridge.toml", environ={})
    assert settings.fleet.from_database
    assert "host=db-a,db-b" in settings.database.url


def test_both_languages_say_as_much():
    shapes = [
        (re.findall(r"(?m)^(#+|- |\d\. |\|)", text), len(BLOCK.findall(text)), text.count("**["))
        for text in TEXTS.values()
    ]
    assert shapes[0] == shapes[1]


@each
def test_every_file_that_is_named_is_there(code: str):
    named = set(re.findall(r"`((?:deploy|docs)/[\w./-]+)`", TEXTS[code])) | {"benchmarks/failover.py"}
    assert not [name for name in named if not (DOCS.parent / name).exists()]
    links = re.findall(r"\]\(([^)#]+)\)", TEXTS[code])
    assert not [link for link in links if not (DOCS / link).resolve().exists()]
