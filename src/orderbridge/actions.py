"""The actions that a POS can ask for, one row each.

No other module names a particular action. The table is read by:

    store.tables           the values of the column `action`, the columns each one needs and their ranges (CHECKs);
                           the actions that answer a customer (views)
    store.write_guards     the columns that a POS writes (by store.tables)
    store.closures         the actions that close, and what ends each (also store.tables, for the view)
    store.actions          the actions that end an order
    store.problem_queries  the actions that answer a customer, and those that cancel an order
    rules.outbox_rows      the subject, the lane, the arguments, the expiry and the alarms of a row; what supersedes it
    rules.queue            the priorities
    rules.lifecycle        the status that an action gives an order, and whether it may be sent
    rules.retry            the evidence after a lost answer, and what a poll or a status proves
    marketplace.client     the path and the body of each call
    cli.action_commands    the commands; config.keys: the range of an automatic accept
    the board              the buttons, and the actions that answer a customer

A request whose answer is lost may have had its effect (docs/design.md, Unknown outcomes). `Evidence` names what shows
its effect. It decides whether the request is sent again, and what a refusal of the second request means. Two columns
interpret the status in which a poll shows the order: with a status in `proves_done` the action is certainly done, with
one in `proves_undone` it certainly is not.

To add an action, add a member to model.Action and a row here. A new argument also needs a column in model.OutboxRow and
in store.tables, with a migration. tests/test_actions.py checks that each member has a row, and that no row contradicts
itself. The errors of an action are in sentences/verdicts.toml; docs/words.toml explains it to POS developers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from orderbridge.model import CANCELED, COMPLETE_WITH_PAYMENT, CONFIRMED, IN_DELIVERY, RECEIVED, Action, OutboxRow


class Subject(StrEnum):
    """What an action changes. Actions on the same order, restaurant or food are sent one after another."""

    ORDER = "order"
    RESTAURANT = "restaurant"
    FOOD = "food"

    @property
    def column(self) -> str:
        """The column of delivery_actions with its id."""
        return {Subject.ORDER: "payment_key", Subject.RESTAURANT: "restaurant_id", Subject.FOOD: "food_id"}[self]


class Evidence(Enum):
    """What shows whether a request had its effect when its answer was lost."""

    POLL = auto()  # a poll; the request is not sent again before it
    REFUSAL = auto()  # a refusal of the second request, and the poll after that
    STATUS = auto()  # the restaurant's status, asked before the request is sent again
    MENU = auto()  # the food's status in a menu that was requested since; without one, the request is sent again


@dataclass(frozen=True, slots=True)
class Argument:
    """The number that an action takes. The column of delivery_actions and the field of the request share its name."""

    column: str
    least: int
    most: int
    option: str  # of the command
    help: str

    def takes(self, value: object) -> bool:
        """Whether the value is a number in the range."""
        return value in range(self.least, self.most + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionKind:
    """One action: its call, its command, its priority and its evidence."""

    subject: Subject
    path: str  # of the PUT; the subject's id follows
    command: str
    evidence: Evidence
    priority: int  # 0 goes first
    argument: Argument | None = None
    target: int | None = None  # the order's status after OK; None: unchanged
    proves_done: frozenset[int] = frozenset()  # an order's statuses that prove it
    proves_undone: frozenset[int] | None = frozenset()  # None: every active status
    target_shown: str | None = None  # the restaurant's or the food's status afterwards
    superseded_by: frozenset[Action] = frozenset()  # later actions in its lane
    answers_customer: bool = False  # a customer waits: it expires early, and its failure is an alarm
    own_courier_only: bool = False  # only for orders that the restaurant's own courier delivers
    ended_by: Action | None = None  # the action that ends this closure after `valid_until_minutes`

    @property
    def ends_order(self) -> bool:
        """Whether the action ends the order. Only one such action of an order can succeed."""
        return self.target in {COMPLETE_WITH_PAYMENT, CANCELED}


OPEN, CLOSED = "Open", "Closed"  # docs/interface.md, Restaurant
ACTIVE, INACTIVE = "active", "inactive"  # delivery_foods.status

_CANCEL = frozenset({Action.CANCEL})
_TOGGLES_RESTAURANT = frozenset({Action.OPEN_RESTAURANT, Action.CLOSE_RESTAURANT})
_TOGGLES_FOOD = frozenset({Action.ACTIVATE_FOOD, Action.DEACTIVATE_FOOD})
PREPARING_TIME = Argument("preparing_time", 1, 1440, "--minutes", "Preparation time in minutes.")
REASON_ID = Argument("reason_id", 1, 8, "--reason", "See delivery_cancel_reasons.")

# Priority 0 for the waiting customer, 1 for the courier and the till, 2 for menus and opening hours.
ACTIONS: Mapping[Action, ActionKind] = {
    Action.ACCEPT: ActionKind(
        subject=Subject.ORDER,
        path="/orders/accept",
        command="accept",
        argument=PREPARING_TIME,
        target=CONFIRMED,
        proves_undone=frozenset({RECEIVED}),
        proves_done=frozenset({CONFIRMED, IN_DELIVERY}),
        evidence=Evidence.POLL,
        superseded_by=_CANCEL,
        priority=0,
        answers_customer=True,
    ),
    Action.ON_THE_WAY: ActionKind(
        subject=Subject.ORDER,
        path="/orders/ontheway",
        command="on-the-way",
        target=IN_DELIVERY,
        proves_undone=frozenset({CONFIRMED}),
        proves_done=frozenset({IN_DELIVERY}),
        evidence=Evidence.POLL,
        superseded_by=_CANCEL,
        priority=1,
        own_courier_only=True,
    ),
    Action.COMPLETE: ActionKind(
        subject=Subject.ORDER,
        path="/orders/complete",
        command="complete",
        target=COMPLETE_WITH_PAYMENT,
        proves_undone=frozenset({IN_DELIVERY}),
        proves_done=frozenset({COMPLETE_WITH_PAYMENT}),
        evidence=Evidence.REFUSAL,
        priority=1,
    ),
    Action.CANCEL: ActionKind(
        subject=Subject.ORDER,
        path="/orders/cancel",
        command="cancel",
        argument=REASON_ID,
        target=CANCELED,
        proves_undone=None,
        proves_done=frozenset({CANCELED}),
        evidence=Evidence.REFUSAL,
        priority=0,
    ),
    Action.OPEN_RESTAURANT: ActionKind(
        subject=Subject.RESTAURANT,
        path="/restaurants/status/open",
        command="restaurant open",
        target_shown=OPEN,
        evidence=Evidence.STATUS,
        superseded_by=_TOGGLES_RESTAURANT,
        priority=2,
    ),
    Action.CLOSE_RESTAURANT: ActionKind(
        subject=Subject.RESTAURANT,
        path="/restaurants/status/close",
        command="restaurant close",
        target_shown=CLOSED,
        evidence=Evidence.STATUS,
        superseded_by=_TOGGLES_RESTAURANT,
        priority=2,
        ended_by=Action.OPEN_RESTAURANT,
    ),
    Action.ACTIVATE_FOOD: ActionKind(
        subject=Subject.FOOD,
        path="/foods/status-active",
        command="food on",
        target_shown=ACTIVE,
        evidence=Evidence.MENU,
        superseded_by=_TOGGLES_FOOD,
        priority=2,
    ),
    Action.DEACTIVATE_FOOD: ActionKind(
        subject=Subject.FOOD,
        path="/foods/status-passive",
        command="food off",
        target_shown=INACTIVE,
        evidence=Evidence.MENU,
        superseded_by=_TOGGLES_FOOD,
        priority=2,
        ended_by=Action.ACTIVATE_FOOD,
    ),
}

AWAITED = frozenset(action for action, kind in ACTIONS.items() if kind.answers_customer)
CANCELLING = frozenset(action for action, kind in ACTIONS.items() if kind.target == CANCELED)
# An order counts as answered if one of these is pending, sending or done for it.
ANSWERS = AWAITED | CANCELLING


def of_subject(subject: Subject) -> frozenset[Action]:
    """All actions on orders, on restaurants or on foods."""
    return frozenset(action for action, kind in ACTIONS.items() if kind.subject is subject)


ORDER_ACTIONS = of_subject(Subject.ORDER)
CLOSURES = frozenset(action for action, kind in ACTIONS.items() if kind.ended_by is not None)
CLOSURE_MINUTES = range(1, 10081)  # of `valid_until_minutes`
ENDING_ACTIONS = frozenset(action for action, kind in ACTIONS.items() if kind.ends_order)
ARGUMENTS = tuple(dict.fromkeys(kind.argument for kind in ACTIONS.values() if kind.argument is not None))


def key_of(row: OutboxRow) -> str:
    """The id of the row's order, restaurant or food; "" if the POS wrote none (the row is refused)."""
    named = getattr(row, ACTIONS[row.action].subject.column)
    return "" if named is None else str(named)


def argument_of(row: OutboxRow) -> int | None:
    """The row's argument; None if its action takes none."""
    argument = ACTIONS[row.action].argument
    value: int | None = None if argument is None else getattr(row, argument.column)
    return value
