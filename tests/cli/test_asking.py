"""Questions at the terminal, in both languages."""

from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner

from orderbridge import texts
from orderbridge.cli import init
from orderbridge.cli.common import confirm
from orderbridge.cli.init import SANDBOX, Asking, Draft
from orderbridge.errors import LoginRefused


def answered(question: Callable[[], object], given: str) -> tuple[Any, str]:
    answers: list[object] = []
    ended = CliRunner().invoke(click.command()(lambda: answers.append(question())), input=given)
    return (answers[0] if answers else None), ended.output


def asked(given: str, *, default: bool = False) -> tuple[bool | None, str]:
    return answered(lambda: confirm("?", default=default), given)


@pytest.mark.parametrize("language", ["tr", "en"])
def test_an_answer_in_either_language_is_understood_in_both(language, monkeypatch):
    monkeypatch.setattr(texts, "_spoken", language)
    for given in ("e", "Evet", "y", "h", "hayır", "HAYIR", "n"):
        answer, shown = asked(f"{given}\n")
        assert answer is (given[0] in "eEy")
        assert ("[e/H]" if language == "tr" else "[y/N]") in shown
    assert (asked("\n")[0], asked("\n", default=True)[0]) == (False, True)
    assert (asked("perhaps\ny\n")[0], asked("perhaps\n")[0]) == (True, None)  # it asks again


def test_another_language_is_asked_for_again_without_a_word_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")
    chosen, shown = answered(Asking(asks=True, untested=False).language, "türkçe\n\n")
    assert shown.splitlines()[0].startswith("Dil / language (tr, en) [tr]: ")
    assert chosen == "tr" and "Error" not in shown


@pytest.mark.parametrize("again", ["n\n", "y\nnew-app\nnew-rest\nn\n"], ids=["goes on", "asks once more"])
def test_refused_secrets_are_asked_for_again_or_written_as_they_are(again, tmp_path, monkeypatch):
    def refuse(_: Draft) -> None:
        raise LoginRefused("login_refused")

    monkeypatch.setattr(init, "STEPS", ((init.SECRETS, refuse),))
    draft = Draft(file=tmp_path / "orderbridge.toml", language="en", values=SANDBOX | {"database": "sqlite:///pos.db"})
    answered(lambda: Asking(asks=True, untested=False).fill(draft), again)
    draft.write()
    written = (tmp_path / "kadikoy.app_secret_key").read_text()
    assert written == ("new-app" if "new-app" in again else SANDBOX["app_secret_key"])
