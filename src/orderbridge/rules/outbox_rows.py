"""What is true of one outbox row: its lane, its account, its age, where it stands, and whether it ends unsent.

What supersedes an action, how long it is worth sending and what it needs is in orderbridge.actions. Which row of a lane is
next, and which lane, rules.queue decides. docs/design.md: Lanes, Expiry.

Where a row stands between its INSERT and its end, and what may end it without a request. A row has six final states, and their names say what they mean. The two states that are not final hide four different
things, and most of what is hard about the outbox hangs on telling them apart:

    standing       state      what has happened                                    may it have had its effect?
    WAITING        pending    nothing left, or each answer was 401 or 429          no
    RETRIED        pending    it had failed, and a person asked for it once more   perhaps: of the failed attempts
    ON_THE_WIRE    sending    a request has left, and has not ended yet            not known yet
    UNRESOLVED     sending    a request ended in a 5xx or without answer           perhaps

                      claim                     answered 401, 429; it never left
    INSERT -> WAITING ------> ON_THE_WIRE ------------------------------------> WAITING (in doubt: UNRESOLVED)
                                 |   ^
                                 |   | claim: its resend, when it is time
             5xx or no answer    v   |
                              UNRESOLVED ------> done, refused, failed: an answer, a poll or a status has shown it
              failed ------> RETRIED             by `actions retry`

A doubt that a request left stays, whatever later ones bring: a row that is in doubt and is answered 401 is UNRESOLVED
again, and so is a RETRIED one whose failed requests left a doubt, from its first new request on
(`stands_after`).

Why it matters. A row that may have had its effect must never be shown to the cashier as "not sent": that is a meal
cooked twice, or an order that is not cooked. So what simply ends a waiting row (too old, taken back, refused here) ends
a doubtful one as `failed, outcome_unknown`: look in the service's panel. Taking back works only on what waits; what is
unresolved goes on until something shows what became of it. A row on the wire is held, and nothing ends
it but its answer; whoever asks has made sure of that, for the table alone does not show it: a crash in between leaves
`sending`, an attempt without an end, and no caller who waits for it. At the next start such a row is UNRESOLVED
(jobs.outcome_writer).

A newer row that makes this one needless supersedes it whether it is doubtful or not: what the newer one does is what
counts in the end.

`ENDS` is all of this as a table. What is not in it does not end a row.

In memory (rules.queue) a row may be held, and then nothing is decided about it, whatever it was before:

    ON_THE_WIRE    its own coroutine has it: from being taken, before its note is written, until its outcome is on disk
    PUT_ASIDE      it is left alone until a time, or until a poll of its account is over: a till holds the row, the
                   database refuses what we write, an acknowledgement has its lane, a poll may show what became of it
    ENDING         its end is decided and not written yet; it ends no older row meanwhile, and stays ENDING when it is
                   put aside, because it may be decided anew when it comes back
    OVER           it is not in the queue any more

Such a row keeps its lane: none behind it may pass. A program that stops forgets these, and the table tells the rest.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from sys import intern

from orderbridge.actions import ACTIONS, ORDER_ACTIONS, Evidence, Subject, argument_of, key_of
from orderbridge.model import ActionState, Attempt, KnownBy, OutboxRow, Verdict
from orderbridge.rules.lifecycle import Already, Refusal, may_send
from orderbridge.rules.retry import AwaitPoll, RetryAt, is_uncertain

Lane = tuple[str, str]

NOT_PERMITTED = "not_permitted"  # the service answers 401 to this row although the login is good

_VALID_MINUTES = range(1, 10081)
_LAST_YEAR = 9000  # no POS means it, and adding minutes to the last day there is fails


class Standing(Enum):
    """Where a row stands that has no verdict; the head of this file says what each means."""

    WAITING = auto()
    RETRIED = auto()
    ON_THE_WIRE = auto()
    UNRESOLVED = auto()
    PUT_ASIDE = auto()
    ENDING = auto()
    OVER = auto()

    @property
    def state(self) -> ActionState:
        """The word for it in the table."""
        return ActionState.PENDING if self in {Standing.WAITING, Standing.RETRIED} else ActionState.SENDING


class Cause(Enum):
    """Why a row ends without another request."""

    WITHDRAWN = auto()  # the POS wants it back
    EXPIRED = auto()  # its time is over
    SUPERSEDED = auto()  # a later row of its lane takes its place
    REFUSED = auto()  # it can never be right


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
    """Where a row stands that is not on the wire. Only `actions retry` sets an expiry, of what had failed."""
    if row.state != ActionState.PENDING:
        return Standing.UNRESOLVED
    return Standing.WAITING if row.expires_utc is None else Standing.RETRIED


def end_by(row: OutboxRow, cause: Cause, code: str | None = None) -> Verdict | None:
    """How that ends a row; None: it does not. `code`: why it is refused or expires, where that is known better."""
    end = ENDS.get((standing_of(row), cause))
    return replace(end, code=code) if code is not None and end is not None and end != _UNKNOWN else end


def stands_after(decision: RetryAt | AwaitPoll, history: Sequence[Attempt]) -> Standing:
    """Where a row stands that goes on after these attempts."""
    unresolved = isinstance(decision, AwaitPoll) or is_uncertain(history)
    return Standing.UNRESOLVED if unresolved else Standing.WAITING


@dataclass(frozen=True, slots=True)
class Directory:
    """Which configured account answers for what. `complete`: the restaurants of every account are known."""

    accounts: Collection[str]  # asked for each row, so a set
    default: str | None
    by_restaurant: Mapping[str, Sequence[str]]
    complete: bool
    is_ours: Callable[[str | None], bool] = field(default=lambda _: True, compare=False)  # of several replicas
    version: int = 0  # of what `is_ours` goes by

    def of_restaurant(self, restaurant_id: str, named: str | None = None) -> str | Refusal | None:
        """The account that reaches a restaurant; None: not known yet."""
        reaching = [name for name in self.by_restaurant.get(restaurant_id, ()) if name in self.accounts]
        if named in reaching or (not reaching and named in self.accounts):
            return named
        if reaching:
            return reaching[0]
        if self.default is not None:
            return self.default  # the service will know
        return Refusal("restaurant_unknown") if self.complete else None

    def of_food(self, row: OutboxRow) -> str | Refusal | None:
        """The account whose menu a food belongs to; None: not known yet."""
        if row.restaurant_id is not None:
            return self.of_restaurant(row.restaurant_id, row.account)
        if row.account is None:
            return self.default or Refusal("account_needed")
        return row.account if row.account in self.accounts else Refusal("account_needed")


@dataclass(slots=True)
class View:
    """What the rules may know of the moment."""

    now: datetime
    directory: Directory
    accept_valid: timedelta
    valid: timedelta
    longest_wait: timedelta = timedelta(hours=1)  # no wait of ours is longer


def order_lane(payment_key: str) -> Lane:
    """The lane of one order, shared with its acknowledgements."""
    return (Subject.ORDER, payment_key)


def argument_problem(row: OutboxRow) -> str | None:
    """The argument that can never be right, for what slipped past the constraints; None when all are."""
    kind = ACTIONS[row.action]
    is_food = isinstance(row.food_id, int) and row.food_id >= 1
    if not (is_food if kind.subject is Subject.FOOD else key_of(row)):
        return kind.subject.column
    if kind.argument is not None and not kind.argument.takes(argument_of(row)):
        return kind.argument.column
    if row.valid_minutes is not None and row.valid_minutes not in _VALID_MINUTES:
        return "valid_minutes"
    if row.created_utc is None or row.created_utc.year > _LAST_YEAR:
        return "created_utc"  # a row without an age would never expire
    return None


def expiry(row: OutboxRow, view: View) -> datetime:
    """When a waiting row is too old to be sent."""
    if row.expires_utc is not None:
        return row.expires_utc
    created = row.created_utc
    if created is None or created.year > _LAST_YEAR:
        return view.now  # it can only be one that was sent: argument_problem refuses what waits
    usual = view.accept_valid if ACTIONS[row.action].answers_customer else view.valid
    minutes = row.valid_minutes
    is_sound = isinstance(minutes, int) and minutes in _VALID_MINUTES
    return created + (timedelta(minutes=minutes) if minutes and is_sound else usual)


def account_of(row: OutboxRow, directory: Directory) -> str | Refusal | None:
    """Whose row it is; None: not known yet, for an order's row that its order is unknown."""
    match ACTIONS[row.action].subject:
        case Subject.ORDER:
            return row.owner
        case Subject.RESTAURANT:
            return directory.of_restaurant(key_of(row), row.account)
        case Subject.FOOD:
            return directory.of_food(row)


def is_ours(row: OutboxRow, directory: Directory) -> bool:
    """Whether this process answers for the row."""
    return directory.is_ours(name_of(row, directory))


def name_of(row: OutboxRow, directory: Directory) -> str | None:
    """The account whose row it is, known or not; None: it names none."""
    account = account_of(row, directory)
    return row.account if isinstance(account, Refusal) else account


def lane_of(row: OutboxRow, account: str | None) -> Lane:
    """What goes one after another: the rows of one order, one restaurant, one food of an account."""
    match ACTIONS[row.action].subject:
        case Subject.ORDER:
            return order_lane(key_of(row))
        case Subject.RESTAURANT as subject:
            return (subject, key_of(row))
        case Subject.FOOD as subject:
            # Of which menu it is may not be known yet: the same number on another one is another food.
            return (intern(f"{subject} {account or row.restaurant_id or ''}"), key_of(row))


def refused_unsent(row: OutboxRow, code: str) -> Verdict | None:
    """How a row ends that is not sent because it can never be right; None: it was sent, and goes on."""
    if code == "order_cancelled":  # whatever became of the row, as when a poll shows it
        return Verdict(ActionState.REFUSED, code)
    return end_by(row, Cause.REFUSED, code)


def order_end(row: OutboxRow) -> Verdict | None:
    """How a waiting row ends because of its order; None: the service is to be asked."""
    if row.action not in ORDER_ACTIONS or row.state != ActionState.PENDING:
        return None  # a row that was sent was allowed then: only an answer or a poll ends it now
    match may_send(row.action, None if row.owner is None else row):
        case Refusal(code=code):
            return refused_unsent(row, code)
        case Already():
            # No status: the stored one is the same, or a later end that a refusal proved, or news since it was read.
            return Verdict(ActionState.DONE, "already", KnownBy.POLL)
        case None:
            return None


def has_changed(known: OutboxRow, fresh: OutboxRow) -> bool:
    """Whether a row has changed since it was read, in what is decided by it."""
    return _decided_by(known) != _decided_by(fresh)


def _decided_by(row: OutboxRow) -> tuple[object, ...]:
    times = row.created_utc, row.next_attempt_utc, row.expires_utc  # also the first: a server's clock may be set
    return row.state, row.withdraw, *times, row.owner, order_end(row)


def unsent_end(row: OutboxRow, later: Sequence[OutboxRow], view: View) -> Verdict | None:
    """How a row ends that is not on the wire; None: it goes on. `later`: the rows of its lane after it that do."""
    if row.state != ActionState.PENDING and not row.tried:  # the POS itself calls it sent: no request of it ever left
        return Verdict(ActionState.REFUSED, "bad_arguments")
    if row.withdraw and (end := end_by(row, Cause.WITHDRAWN)) is not None:
        return end
    if view.now >= expiry(row, view):
        is_orphaned = row.owner is not None and row.owner not in view.directory.accounts
        return end_by(row, Cause.EXPIRED, "account_missing" if is_orphaned else None)
    newer_counts = ACTIONS[row.action].superseded_by
    if newer_counts and any(newer.action in newer_counts for newer in later):
        return end_by(row, Cause.SUPERSEDED)
    return None


def with_reason(verdict: Verdict, row: OutboxRow) -> Verdict:
    """An expiry says why the row was never done, where that lies with the row itself. `row`: as it was read last."""
    if verdict.state == ActionState.EXPIRED and row.waits_for == NOT_PERMITTED:
        return replace(verdict, code=NOT_PERMITTED)
    return verdict


def is_alarm(row: OutboxRow, verdict: Verdict) -> bool:
    """Whether a person has to act at once.

    A customer who was not answered is an alarm. So is an action of which it is not known what it did, and which
    cannot just be repeated: a person has to check.
    """
    kind = ACTIONS[row.action]
    unanswered = kind.answers_customer and verdict.state in {ActionState.FAILED, ActionState.EXPIRED}
    return unanswered or (kind.evidence is Evidence.POLL and verdict.code == "outcome_unknown")


def wrong_argument(row: OutboxRow) -> tuple[str, str]:
    """The argument that can never be right, and what is wrong with it: the code of a sentence in `arguments`."""
    argument = argument_problem(row)
    if argument is None:  # then it is the state, which a POS has to leave to us
        return "state", "not_empty"
    value = getattr(row, argument)
    if value is None or value == "":
        return argument, "missing"
    return argument, "no_number" if isinstance(value, str | float | bytes) else "out_of_range"
