"""Decides about single outbox rows: the lane, the account, the expiry, the standing, and whether it ends unsent.

orderbridge.actions has what supersedes an action, how long it is valid and what it needs. rules.queue decides which row
is next. See docs/design.md: Lanes, Expiry.

The two states of an unfinished row, pending and sending, cover four different standings:

    standing       state      what has happened                                    may it have had its effect?
    WAITING        pending    nothing was sent, or each answer was 401 or 429      no
    RETRIED        pending    it failed, and a person retried it                   perhaps, by a failed attempt
    ON_THE_WIRE    sending    a request was sent, and has not ended yet            not known yet
    UNRESOLVED     sending    a request ended in a 5xx or without answer           perhaps

                      claim                     answered 401, 429; it was not sent
    INSERT -> WAITING ------> ON_THE_WIRE ------------------------------------> WAITING (in doubt: UNRESOLVED)
                                 |   ^
                                 |   | claim: its resend, when it is time
             5xx or no answer    v   |
                              UNRESOLVED ------> done, refused, failed: an answer, a poll or a status has shown it
              failed ------> RETRIED             by `actions retry`

A doubt from one request remains, whatever later requests bring. A row in doubt that is answered 401 is UNRESOLVED
again; so is a RETRIED row with an earlier doubt, from its first new request on (`stands_after`).

This matters because a row that may have had its effect must never be shown to the cashier as "not sent": the meal would
be cooked twice, or not at all. So a reason that simply ends a waiting row (expired, withdrawn, refused here) ends a
doubtful one as `failed, outcome_unknown`, and the cashier must check the marketplace's panel. Only waiting rows can be
withdrawn; an unresolved row stays until something shows its outcome. A row in flight ends only by its answer. The table
alone does not show whether it is in flight: after a crash it has `sending` and an open attempt. At the next start such
a row becomes UNRESOLVED (jobs.outcome_writer).

A newer row that makes this one needless supersedes it, doubtful or not, because the newer one's effect counts.

`ENDS` has all of this as a table. A combination that it lacks does not end a row.

In memory (rules.queue) a row may also be held. Then nothing is decided about it:

    ON_THE_WIRE    its coroutine has it, from being taken until its outcome is on disk
    PUT_ASIDE      it waits for a time, or for the end of a poll: it is locked, the database refuses the write, an
                   acknowledgement has its lane, or a poll may show its outcome
    ENDING         its end is decided but not written. Meanwhile it supersedes no older row. If the write is postponed,
                   the end may be decided again
    OVER           it is no longer in the queue

A held row keeps its lane, so no later row passes it. After a restart these are gone, and the table decides.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from sys import intern

from orderbridge.actions import (
    ACTIONS,
    CLOSURE_MINUTES,
    CLOSURES,
    ORDER_ACTIONS,
    Evidence,
    Subject,
    argument_of,
    key_of,
)
from orderbridge.model import Action, ActionState, Attempt, KnownBy, OutboxRow, Verdict
from orderbridge.rules.closures import waiting_end
from orderbridge.rules.lifecycle import Already, Refusal, may_send
from orderbridge.rules.retry import AwaitPoll, RetryAt, is_uncertain

Lane = tuple[str, str]

NOT_PERMITTED = "not_permitted"  # the row is answered 401 although the login works

_VALID_MINUTES = range(1, 10081)
_LAST_YEAR = 9000  # later dates are mistakes, and adding to them may overflow


class Standing(Enum):
    """The standing of an unfinished row; see the module's docstring."""

    WAITING = auto()
    RETRIED = auto()
    ON_THE_WIRE = auto()
    UNRESOLVED = auto()
    PUT_ASIDE = auto()
    ENDING = auto()
    OVER = auto()

    @property
    def state(self) -> ActionState:
        """Its state in the table."""
        return ActionState.PENDING if self in {Standing.WAITING, Standing.RETRIED} else ActionState.SENDING


class Cause(Enum):
    """Why a row may end without another request."""

    WITHDRAWN = auto()  # by the POS
    EXPIRED = auto()
    SUPERSEDED = auto()  # by a later row of its lane
    REFUSED = auto()  # it can never succeed


_UNKNOWN = Verdict(ActionState.FAILED, "outcome_unknown")
_SUPERSEDED = Verdict(ActionState.SUPERSEDED, "superseded")

ENDS: Mapping[tuple[Standing, Cause], Verdict] = {
    (Standing.WAITING, Cause.WITHDRAWN): Verdict(ActionState.WITHDRAWN, "withdrawn"),
    (Standing.WAITING, Cause.EXPIRED): Verdict(ActionState.EXPIRED, "expired"),
    (Standing.WAITING, Cause.SUPERSEDED): _SUPERSEDED,
    (Standing.WAITING, Cause.REFUSED): Verdict(ActionState.REFUSED, "bad_arguments"),
    (Standing.RETRIED, Cause.WITHDRAWN): _UNKNOWN,
    (Standing.RETRIED, Cause.EXPIRED): _UNKNOWN,
    (Standing.RETRIED, Cause.SUPERSEDED): _SUPERSEDED,
    (Standing.RETRIED, Cause.REFUSED): _UNKNOWN,
    (Standing.UNRESOLVED, Cause.EXPIRED): _UNKNOWN,
    (Standing.UNRESOLVED, Cause.SUPERSEDED): _SUPERSEDED,
}


def standing_of(row: OutboxRow) -> Standing:
    """The standing of a row that is not in flight. Only `actions retry` sets expires_utc."""
    if row.state != ActionState.PENDING:
        return Standing.UNRESOLVED
    return Standing.WAITING if row.expires_utc is None else Standing.RETRIED


def end_by(row: OutboxRow, cause: Cause, code: str | None = None) -> Verdict | None:
    """The verdict for this cause, or None if it does not end the row. `code`: a more exact reason."""
    end = ENDS.get((standing_of(row), cause))
    return replace(end, code=code) if code is not None and end is not None and end != _UNKNOWN else end


def stands_after(decision: RetryAt | AwaitPoll, history: Sequence[Attempt]) -> Standing:
    """The standing of a row that does not end with these attempts."""
    unresolved = isinstance(decision, AwaitPoll) or is_uncertain(history)
    return Standing.UNRESOLVED if unresolved else Standing.WAITING


@dataclass(frozen=True, slots=True)
class Directory:
    """Finds the account of a row. `complete`: the restaurants of all accounts are known."""

    accounts: Collection[str]  # should be a set
    default: str | None
    by_restaurant: Mapping[str, Sequence[str]]
    complete: bool
    is_ours: Callable[[str | None], bool] = field(default=lambda _: True, compare=False)  # for replicas
    version: int = 0  # of the roster behind `is_ours`

    def of_restaurant(self, restaurant_id: str, named: str | None = None) -> str | Refusal | None:
        """The account that reaches the restaurant; None: not known yet."""
        reaching = self._reaching(restaurant_id)
        if named in reaching or (not reaching and named in self.accounts):
            return named
        if reaching:
            return reaching[0]
        if self.default is not None:
            return self.default  # the marketplace decides
        return Refusal("restaurant_unknown") if self.complete else None

    def knows(self, account: str | None) -> bool:
        """Whether the restaurants of this account are known."""
        return self.complete or any(account in reaching for reaching in self.by_restaurant.values())

    def _reaching(self, restaurant_id: str) -> list[str]:
        return [name for name in self.by_restaurant.get(restaurant_id, ()) if name in self.accounts]

    def of_food(self, row: OutboxRow) -> str | Refusal | None:
        """The account of a food's menu; None: not known yet."""
        if row.restaurant_id is not None:
            # The request names no restaurant: by the default account it would switch a food of another menu.
            if row.account not in self.accounts and not self._reaching(row.restaurant_id):
                return Refusal("restaurant_unknown") if self.complete else None
            return self.of_restaurant(row.restaurant_id, row.account)
        if row.account is None:
            return self.default or Refusal("account_needed")
        return row.account if row.account in self.accounts else Refusal("account_needed")


@dataclass(slots=True)
class View:
    """The state of the moment that the rules need."""

    now: datetime
    directory: Directory
    validity: Callable[[Action, int | None], timedelta]  # by action and the row's valid_minutes
    longest_wait: timedelta = timedelta(hours=1)  # between two tries


def order_lane(payment_key: str) -> Lane:
    """The lane of one order, shared with its acknowledgements."""
    return (Subject.ORDER, payment_key)


def argument_problem(row: OutboxRow) -> str | None:
    """The column of an invalid argument that passed the constraints; None if all are valid."""
    kind = ACTIONS[row.action]
    is_food = isinstance(row.food_id, int) and row.food_id >= 1
    if not (is_food if kind.subject is Subject.FOOD else key_of(row)):
        return kind.subject.column
    if kind.argument is not None and not kind.argument.takes(argument_of(row)):
        return kind.argument.column
    if row.valid_minutes is not None and row.valid_minutes not in _VALID_MINUTES:
        return "valid_minutes"
    if row.valid_until_minutes is not None and not _may_end(row):
        return "valid_until_minutes"
    if row.created_utc is None or row.created_utc.year > _LAST_YEAR:
        return "created_utc"  # without it the row would never expire
    return None


def _may_end(row: OutboxRow) -> bool:
    return row.action in CLOSURES and row.valid_until_minutes in CLOSURE_MINUTES


def expiry(row: OutboxRow, view: View) -> datetime:
    """When a waiting row expires."""
    if row.expires_utc is not None:
        return row.expires_utc
    created = row.created_utc
    if created is None or created.year > _LAST_YEAR:
        return view.now  # the row was sent: argument_problem refuses a waiting one
    return created + view.validity(row.action, row.valid_minutes if row.valid_minutes in _VALID_MINUTES else None)


def account_of(row: OutboxRow, directory: Directory) -> str | Refusal | None:
    """The account of a row; None: not known yet or, for an order's row, the order is unknown."""
    match ACTIONS[row.action].subject:
        case Subject.ORDER:
            return row.owner
        case Subject.RESTAURANT:
            return directory.of_restaurant(key_of(row), row.account)
        case Subject.FOOD:
            return directory.of_food(row)


def is_ours(row: OutboxRow, directory: Directory) -> bool:
    """Whether the row belongs to this process."""
    return directory.is_ours(name_of(row, directory))


def name_of(row: OutboxRow, directory: Directory) -> str | None:
    """The account's name for a row, configured or not; None: the row has none."""
    account = account_of(row, directory)
    return row.account if isinstance(account, Refusal) else account


def lane_of(row: OutboxRow, account: str | None) -> Lane:
    """The lane of a row: its order, its restaurant, or its food of one account."""
    match ACTIONS[row.action].subject:
        case Subject.ORDER:
            return order_lane(key_of(row))
        case Subject.RESTAURANT as subject:
            return (subject, key_of(row))
        case Subject.FOOD as subject:
            # The menu may not be known yet, and the same number on another menu is another food.
            return (intern(f"{subject} {account or row.restaurant_id or ''}"), key_of(row))


def refused_unsent(row: OutboxRow, code: str) -> Verdict | None:
    """The verdict for a row that can never succeed; None: it was sent already, so it does not end here."""
    if code == "order_cancelled":  # ends every row of the order
        return Verdict(ActionState.REFUSED, code)
    return end_by(row, Cause.REFUSED, code)


def order_end(row: OutboxRow) -> Verdict | None:
    """The verdict for a waiting row by the state of its order; None: it is to be sent."""
    if row.action not in ORDER_ACTIONS or row.state != ActionState.PENDING:
        return None  # a sent row ends only by an answer or a poll
    match may_send(row.action, None if row.owner is None else row):
        case Refusal(code=code):
            return refused_unsent(row, code)
        case Already():
            # Without a status: the stored one is equal, or newer.
            return Verdict(ActionState.DONE, "already", KnownBy.POLL)
        case None:
            return None


def has_changed(known: OutboxRow, fresh: OutboxRow) -> bool:
    """Whether facts of the row that decisions depend on have changed since it was read."""
    return _decided_by(known) != _decided_by(fresh)


def _decided_by(row: OutboxRow) -> tuple[object, ...]:
    times = row.created_utc, row.next_attempt_utc, row.expires_utc  # created_utc, too: the server's clock may be set
    return row.state, row.withdraw, *times, row.owner, order_end(row)


def unsent_end(row: OutboxRow, later: Sequence[OutboxRow], view: View) -> Verdict | None:
    """The verdict for a row that ends unsent, or None. `later`: the later rows of its lane that do not end."""
    if row.state != ActionState.PENDING and not row.tried:  # the POS wrote this state; no request was sent
        return Verdict(ActionState.REFUSED, "bad_arguments")
    if row.withdraw and (end := end_by(row, Cause.WITHDRAWN)) is not None:
        return end
    closes_until = waiting_end(row)
    if view.now >= expiry(row, view) or (closes_until is not None and view.now >= closes_until):
        is_orphaned = row.owner is not None and row.owner not in view.directory.accounts
        return end_by(row, Cause.EXPIRED, "account_missing" if is_orphaned else None)
    newer_counts = ACTIONS[row.action].superseded_by
    if newer_counts and any(newer.action in newer_counts for newer in later):
        return end_by(row, Cause.SUPERSEDED)
    return None


def with_reason(verdict: Verdict, row: OutboxRow) -> Verdict:
    """The verdict, where an expiry gets the row's own reason if it has one. `row`: as last read."""
    if verdict.state == ActionState.EXPIRED and row.waits_for == NOT_PERMITTED:
        return replace(verdict, code=NOT_PERMITTED)
    return verdict


def is_alarm(row: OutboxRow, verdict: Verdict) -> bool:
    """Whether a person must act at once.

    This is so for a customer without an answer, and for an unknown outcome of an action that cannot simply be repeated.
    """
    kind = ACTIONS[row.action]
    unanswered = kind.answers_customer and verdict.state in {ActionState.FAILED, ActionState.EXPIRED}
    return unanswered or (kind.evidence is Evidence.POLL and verdict.code == "outcome_unknown")


def wrong_argument(row: OutboxRow) -> tuple[str, str]:
    """The column of an invalid argument, and the code of its sentence in `arguments`."""
    argument = argument_problem(row)
    if argument is None:  # then the POS wrote the state, which is ours
        return "state", "not_empty"
    value = getattr(row, argument)
    if value is None or value == "":
        return argument, "missing"
    return argument, "no_number" if isinstance(value, str | float | bytes) else "out_of_range"
