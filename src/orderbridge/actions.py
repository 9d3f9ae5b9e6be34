"""The actions that a POS can ask for, one row each.

Only this table knows the single actions. It is read by:

    store.tables        which words the column `action` takes, what each needs beside it and in which range (CHECKs);
                        which of them answer a customer (the views)
    store.grants        which columns a POS fills in (by store.tables)
    store.actions       which of them end an order
    store.problem_queries  which rows are an answer to a customer, and which cancel an order
    rules.outbox_rows        whose row it is, its lane, its arguments, how long it is worth sending, what supersedes it
    rules.queue                  which goes first
    rules.lifecycle     to which status it takes an order, whether it may be sent at all
    rules.retry         what clears the doubt after a lost answer, and what a poll proves
    rules.outbox_rows        whether its end is an alarm
    board cards         which of them answer a customer
    marketplace.client  method, path and body of its call
    cli.action_commands         its command; config.keys    the range of an automatic accept
    board acts          what a tap asks for, and about what

A request whose answer is lost may have had its effect. Whether it is sent again, and what a refusal of the second
request means, depends on what the service shows of the first (docs/design.md, Unknown outcomes); `Doubt` names the four
ways. Two columns interpret what a poll shows of an order: `shown_by` are the statuses in which the action is certainly
done, `undone` those in which it certainly is not.

A new action is a word in model.Action and a row here; one with an argument of its own also a column in model.OutboxRow
and in store.tables, with a migration. The program does not start while a word has no row, or a row contradicts itself.
The errors of an action are in sentences/verdicts.toml, its meaning for POS developers in docs/words.toml.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum, StrEnum, auto

from orderbridge.model import CANCELED, COMPLETE_WITH_PAYMENT, CONFIRMED, IN_DELIVERY, RECEIVED, Action, OutboxRow


class Subject(StrEnum):
    """What an action is done to. Rows that are about the same one are sent one after another."""

    ORDER = "order"
    RESTAURANT = "restaurant"
    FOOD = "food"

    @property
    def column(self) -> str:
        """The column of delivery_actions that names it."""
        return {Subject.ORDER: "payment_key", Subject.RESTAURANT: "restaurant_id", Subject.FOOD: "food_id"}[self]


class Doubt(Enum):
    """What clears the doubt after a request whose answer was lost."""

    POLL = auto()  # a poll shows whether it was done, and until then it is not sent again
    REFUSAL = auto()  # it is sent again; when that is refused, the next poll shows whether it was done before
    STATUS = auto()  # the restaurant's own status is asked before it is sent again
    NOTHING = auto()  # nothing shows it, and doing it twice is as good as once: it is sent again


@dataclass(frozen=True, slots=True)
class Argument:
    """The number that an action takes: a column of delivery_actions, and under the same name the body of its call."""

    column: str
    least: int
    most: int
    option: str  # of the command
    help: str

    def takes(self, value: object) -> bool:
        """Whether it is a number in the range."""
        return value in range(self.least, self.most + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionKind:
    """One row of the table."""

    subject: Subject
    path: str  # of its PUT; the id of what it is done to follows
    command: str
    doubt: Doubt
    priority: int  # 0 goes first
    argument: Argument | None = None
    target: int | None = None  # the status that OK gives an order; None: it changes none
    shown_by: frozenset[int] = frozenset()  # statuses in which a poll shows that it was done
    undone: frozenset[int] | None = frozenset()  # statuses in which it shows that it was not; None: every active one
    target_shown: str | None = None  # what the restaurant's own status says when it is done
    superseded_by: frozenset[Action] = frozenset()  # later ones in its lane
    answers_customer: bool = (
        False  # a customer waits for it: it is worth sending only shortly, and its failure an alarm
    )
    own_courier_only: bool = False  # only for orders that the restaurant's courier delivers

    def __post_init__(self) -> None:
        proved_by_poll = self.doubt in {Doubt.POLL, Doubt.REFUSAL}
        if proved_by_poll != bool(self.shown_by) or (proved_by_poll and self.target not in self.shown_by):
            raise TypeError(f"{self.path}: a poll clears the doubt where it shows the target, and nowhere else")
        if (self.target is not None) > (self.subject is Subject.ORDER) or not 0 <= self.priority < PRIORITIES:
            raise TypeError(f"{self.path}: target or priority")
        is_asked = self.doubt is Doubt.STATUS
        if is_asked != (self.target_shown is not None) or is_asked > (self.subject is Subject.RESTAURANT):
            raise TypeError(f"{self.path}: a restaurant's status clears the doubt where it shows the target")

    @property
    def ends_order(self) -> bool:
        """Whether the order is over when it is done. Only one of these can come true."""
        return self.target in {COMPLETE_WITH_PAYMENT, CANCELED}


PRIORITIES = 3
OPEN, CLOSED = "Open", "Closed"  # docs/interface.md, Restaurant

_CANCEL = frozenset({Action.CANCEL})
_TOGGLES_RESTAURANT = frozenset({Action.OPEN_RESTAURANT, Action.CLOSE_RESTAURANT})
_TOGGLES_FOOD = frozenset({Action.ACTIVATE_FOOD, Action.DEACTIVATE_FOOD})
PREPARING_TIME = Argument("preparing_time", 1, 1440, "--minutes", "Preparation time in minutes.")
REASON_ID = Argument("reason_id", 1, 8, "--reason", "See delivery_cancel_reasons.")

# A customer waits for an answer, then a courier and a till for theirs; a menu can wait a moment.
ACTIONS: Mapping[Action, ActionKind] = {
    Action.ACCEPT: ActionKind(
        subject=Subject.ORDER,
        path="/orders/accept",
        command="accept",
        argument=PREPARING_TIME,
        target=CONFIRMED,
        undone=frozenset({RECEIVED}),
        shown_by=frozenset({CONFIRMED, IN_DELIVERY}),
        doubt=Doubt.POLL,
        superseded_by=_CANCEL,
        priority=0,
        answers_customer=True,
    ),
    Action.ON_THE_WAY: ActionKind(
        subject=Subject.ORDER,
        path="/orders/ontheway",
        command="on-the-way",
        target=IN_DELIVERY,
        undone=frozenset({CONFIRMED}),
        shown_by=frozenset({IN_DELIVERY}),
        doubt=Doubt.POLL,
        superseded_by=_CANCEL,
        priority=1,
        own_courier_only=True,
    ),
    Action.COMPLETE: ActionKind(
        subject=Subject.ORDER,
        path="/orders/complete",
        command="complete",
        target=COMPLETE_WITH_PAYMENT,
        undone=frozenset({IN_DELIVERY}),
        shown_by=frozenset({COMPLETE_WITH_PAYMENT}),
        doubt=Doubt.REFUSAL,
        priority=1,
    ),
    Action.CANCEL: ActionKind(
        subject=Subject.ORDER,
        path="/orders/cancel",
        command="cancel",
        argument=REASON_ID,
        target=CANCELED,
        undone=None,
        shown_by=frozenset({CANCELED}),
        doubt=Doubt.REFUSAL,
        priority=0,
    ),
    Action.OPEN_RESTAURANT: ActionKind(
        subject=Subject.RESTAURANT,
        path="/restaurants/status/open",
        command="restaurant open",
        target_shown=OPEN,
        doubt=Doubt.STATUS,
        superseded_by=_TOGGLES_RESTAURANT,
        priority=2,
    ),
    Action.CLOSE_RESTAURANT: ActionKind(
        subject=Subject.RESTAURANT,
        path="/restaurants/status/close",
        command="restaurant close",
        target_shown=CLOSED,
        doubt=Doubt.STATUS,
        superseded_by=_TOGGLES_RESTAURANT,
        priority=2,
    ),
    Action.ACTIVATE_FOOD: ActionKind(
        subject=Subject.FOOD,
        path="/foods/status-active",
        command="food on",
        doubt=Doubt.NOTHING,
        superseded_by=_TOGGLES_FOOD,
        priority=2,
    ),
    Action.DEACTIVATE_FOOD: ActionKind(
        subject=Subject.FOOD,
        path="/foods/status-passive",
        command="food off",
        doubt=Doubt.NOTHING,
        superseded_by=_TOGGLES_FOOD,
        priority=2,
    ),
}

AWAITED = frozenset(action for action, kind in ACTIONS.items() if kind.answers_customer)
CANCELLING = frozenset(action for action, kind in ACTIONS.items() if kind.target == CANCELED)
# Whichever of them waits, is under way or is done: the customer's order is no longer without an answer.
ANSWERS = AWAITED | CANCELLING
if missing := set(Action) - set(ACTIONS):
    raise TypeError(f"{', '.join(sorted(missing))}: no row in orderbridge.actions, so nobody would know how to do it")

_READ = {field.name for field in fields(OutboxRow)}
if unread := {kind.argument.column for kind in ACTIONS.values() if kind.argument is not None} - _READ:
    raise TypeError(f"{', '.join(sorted(unread))}: no field of OutboxRow, so it would never be read")


def of_subject(subject: Subject) -> frozenset[Action]:
    """The actions that are done to an order, a restaurant or a food."""
    return frozenset(action for action, kind in ACTIONS.items() if kind.subject is subject)


ORDER_ACTIONS = of_subject(Subject.ORDER)
ENDING_ACTIONS = frozenset(action for action, kind in ACTIONS.items() if kind.ends_order)
ARGUMENTS = tuple(dict.fromkeys(kind.argument for kind in ACTIONS.values() if kind.argument is not None))


def key_of(row: OutboxRow) -> str:
    """Which order, restaurant or food a row is about; "" where the POS does not say, and such a row is refused."""
    named = getattr(row, ACTIONS[row.action].subject.column)
    return "" if named is None else str(named)


def argument_of(row: OutboxRow) -> int | None:
    """The number that the action of a row takes; None when it takes none."""
    argument = ACTIONS[row.action].argument
    value: int | None = None if argument is None else getattr(row, argument.column)
    return value
