"""What a person would do at the till: done by a command, by a person at the terminal, or not at all."""

import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

LONGEST_S = 30.0
CANNOT = 64  # with this the command says that it does not know the verb


@dataclass(frozen=True, slots=True)
class Done:
    """The result: whether it could be done, and the output."""

    able: bool
    output: str = ""
    yes: bool | None = None  # a person's answer to a question


class Operator:
    """Works the till. The base class does nothing: what needs an operator is not seen."""

    by_person = False
    person: "Person | None" = None  # who is asked what only eyes can see

    def do(self, verb: str, *arguments: str, about: str) -> Done:  # noqa: ARG002 - for the others
        """Do it; `about` says it in words, or asks."""
        return Done(able=False)


class Command(Operator):
    """COMMAND VERB ARGUMENTS, without a shell."""

    def __init__(self, command: str, tell: Callable[[str], None], person: "Person | None" = None) -> None:
        self._command = shlex.split(command)
        self._tell = tell
        self.person = person

    def do(self, verb: str, *arguments: str, about: str) -> Done:  # noqa: ARG002 - as above
        """Run it. What it complains of is for who watches, and for no report."""
        try:
            ran = subprocess.run(  # noqa: S603 - the command that the technician named
                [*self._command, verb, *arguments], capture_output=True, text=True, timeout=LONGEST_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self._tell(f"{verb}: {type(error).__name__}")
            return Done(able=False)
        if ran.returncode not in (0, CANNOT):
            self._tell(f"{verb}: {ran.returncode} {ran.stderr.strip()[-300:]}")
        return Done(able=ran.returncode != CANNOT, output=ran.stdout)


class Person(Operator):
    """Somebody at the terminal: Enter when it is done, yes or no to a question, s to skip."""

    by_person = True

    def __init__(self, ask: Callable[[str, bool], str]) -> None:
        """`ask(sentence, is_question)` gives "done", "yes", "no" or "skip"."""
        self._ask = ask
        self.person = self

    def do(self, verb: str, *arguments: str, about: str) -> Done:  # noqa: ARG002 - as above
        """Ask, and wait for the answer."""
        answer = self._ask(about, verb in QUESTIONS)
        return Done(able=answer != "skip", yes={"yes": True, "no": False}.get(answer))


QUESTIONS = frozenset({"ticket", "collect"})
