"""One sentence of the interface, and the tests that prove it on both sides."""

from dataclasses import dataclass

from tests.jobs.test_open_points import day_of


@dataclass(frozen=True, slots=True)
class NotOurs:
    """Why one side has nothing to prove."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, an error, a limit, or a thing that the interface does not show.

    `spec` is the paragraph, ` / `, the sentence in short. `client` names the test of the daemon, its rules or its
    client: for what is not shown, the one that it survives whichever way it turns out. `sandbox` names the test that
    the sandbox plays it so.
    """

    id: str
    spec: str
    client: str | NotOurs
    sandbox: str | NotOurs

    @property
    def paragraph(self) -> str:
        return self.spec.partition(" / ")[0]


# The client's side.
ACCOUNT = "tests/jobs/test_account.py::"
ANSWERS = "tests/marketplace/test_answers.py::"
BOTH = "tests/marketplace/test_against_sandbox.py::"
CLIENT = "tests/marketplace/test_client.py::"
CONFIG = "tests/config/test_keys.py::"
DAEMON = "tests/test_daemon.py::"
VERDICTS = "tests/jobs/test_verdicts.py::"
HTTP = "tests/marketplace/test_http.py::"
STATUS_IDS = "tests/rules/test_statuses.py::"
LISTING = "tests/marketplace/test_listing.py::"
LISTS = "tests/jobs/test_reference.py::"
MUTILATED = "tests/jobs/test_mutilated_orders.py::"
ORDER = "tests/marketplace/test_order.py::"
PAYMENT = "tests/marketplace/test_payment.py::"
POLL = "tests/jobs/test_poll.py::"
READERS = "tests/marketplace/test_reference.py::"
RETRY = "tests/rules/test_retry.py::"
SWEEP = "tests/jobs/test_sweep.py::"
TABLES = "tests/store/test_tables.py::"
TOKENS = "tests/rules/test_tokens.py::"

# The sandbox's side.
FAULTS = "tests/sandbox/test_sandbox_faults.py::"
LOGIN = "tests/sandbox/test_sandbox_login.py::"
MENU = "tests/sandbox/test_sandbox_restaurants_and_foods.py::"
MOVES = "tests/sandbox/test_sandbox_lifecycle.py::"
QUEUE = "tests/sandbox/test_sandbox_list.py::"
SERVER = "tests/sandbox/test_sandbox_server.py::"
WORLD = "tests/sandbox/test_sandbox_world.py::"


def a_day(setting: str) -> str:
    """The whole day of a chain under one setting of the sandbox's switches."""
    return f"tests/jobs/test_open_points.py::test_a_day_comes_out_the_same[{setting}]"


def switched(switch: str, value: object) -> str:
    """The day on which a plain switch, among others, is turned so."""
    return a_day(day_of(switch, value))


def read(path: str) -> str:
    """A field of an order, served in each wrong way, all the way to its column."""
    return f"{MUTILATED}test_a_mutilated_field_costs_its_column_and_nothing_else[{path}]"


def made(path: str) -> str:
    """A field of an order as the sandbox writes it."""
    return f"{WORLD}test_a_field_is_always_there_and_of_its_type[{path}]"
