"""Every sentence of the interface has a test on both sides: the daemon's, and the sandbox's that plays the service.

The interface itself is a document of its own, so the table beside this file is the complete list of what it says.
"""

import ast
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from tests.interface import endpoints, errors, resources, states
from tests.interface.rule import NotOurs, Rule

ROOT = Path(__file__).parents[2]
RULES = [*resources.RULES, *states.RULES, *endpoints.RULES, *errors.RULES]
SANDBOX = "tests/sandbox/"
MOST_NOT_OURS = 4

# In the order in which the interface has them. A paragraph that comes new to it belongs here, then it needs its rows.
PARAGRAPHS = """
    Conventions
    What the service does
    Access token
    Restaurant
    Order
    Address
    Order item
    Option group
    Menu item record
    Cancel reason
    Payment and shipping methods
    Order statuses
    Order transitions
    Acknowledgement
    Restaurant status
    Menu item status
    Endpoints
    1 login
    2 restaurants
    3 restaurant status
    4 and 5 open restaurant
    4 and 5 close restaurant
    6 get-current
    7 success
    8 accept
    9 ontheway
    10 complete
    11 cancel
    12 cancel-reasons
    13 variables
    14 and 15 status-passive
    14 and 15 status-active
    Menu listing
    Authentication 1
    Authentication 2
    Authentication 3
    Authentication 4
    Authentication 5
    Authentication 6
    Authentication 7
    Authentication 8
    Authentication 9
    Events
    Errors
    Errors not shown
    Retry guidance
    Limits
    Limits not shown
    Versioning
""".strip().splitlines()


def named_by(rule: Rule) -> list[str]:
    return [side for side in (rule.client, rule.sandbox) if isinstance(side, str)]


@cache
def functions(path: str) -> frozenset[str]:
    """The tests in a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


@cache
def parametrized() -> frozenset[str]:
    """The tests of all named files as pytest collects them, each with the id of its row."""
    files = sorted({test.partition("::")[0] for rule in RULES for test in named_by(rule) if "[" in test})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return frozenset(collected.stdout.splitlines())


def test_no_two_rules_have_one_name() -> None:
    assert [name for name, number in Counter(rule.id for rule in RULES).items() if number > 1] == []


def test_no_two_rules_say_the_same() -> None:
    assert [said for said, number in Counter(rule.spec for rule in RULES).items() if number > 1] == []


def test_each_paragraph_has_its_rules_and_each_rule_its_paragraph() -> None:
    assert list(dict.fromkeys(rule.paragraph for rule in sorted(RULES, key=place))) == [
        paragraph.strip() for paragraph in PARAGRAPHS
    ]


def place(rule: Rule) -> int:
    """Where the rule's paragraph stands; one that is not in the list fails."""
    return [paragraph.strip() for paragraph in PARAGRAPHS].index(rule.paragraph)


def test_each_rule_has_a_test_on_each_side_or_the_reason_why_not() -> None:
    def is_said(side: str | NotOurs) -> bool:
        return "::test_" in side if isinstance(side, str) else len(side.reason.split()) > 5

    assert [rule.id for rule in RULES if not (is_said(rule.client) and is_said(rule.sandbox))] == []


def test_each_rule_is_proved_by_somebody() -> None:
    assert [rule.id for rule in RULES if not named_by(rule)] == []


def test_few_rules_have_nothing_to_prove_on_a_side() -> None:
    assert len([rule.id for rule in RULES if len(named_by(rule)) < 2]) <= MOST_NOT_OURS


def test_each_side_is_proved_by_its_own_tests() -> None:
    of_sandbox = [rule.id for rule in RULES if isinstance(rule.client, str) and rule.client.startswith(SANDBOX)]
    of_client = [rule.id for rule in RULES if isinstance(rule.sandbox, str) and not rule.sandbox.startswith(SANDBOX)]
    assert (of_sandbox, of_client) == ([], [])


def test_what_is_not_shown_is_survived_by_the_daemon_itself() -> None:
    """What the sandbox can only play must be lived through, not merely read."""
    lived = ("tests/jobs/", "tests/marketplace/test_client.py::", "tests/marketplace/test_http.py::", "tests/store/")
    open_points = [rule for rule in RULES if ": not shown" in rule.spec or "not shown /" in rule.spec]
    assert [rule.id for rule in open_points if isinstance(rule.client, str) and not rule.client.startswith(lived)] == []


def test_the_named_tests_are_there() -> None:
    named = {test.partition("[")[0] for rule in RULES for test in named_by(rule)}
    assert sorted(test for test in named if test.partition("::")[2] not in functions(test.partition("::")[0])) == []


@pytest.mark.slow
def test_the_rows_of_parametrized_tests_are_there() -> None:
    named = {test for rule in RULES for test in named_by(rule) if "[" in test}
    assert sorted(named - parametrized()) == []
