"""Which outbox rows go next, which end unsent (docs/design.md, Lanes, The outbox, Expiry, What is refused unsent).

Rules of this file:
- Rows of one lane go by their ids; a row that waits or is unresolved holds its lane.
- Only a waiting row expires or is withdrawn; an unresolved one whose time is over ends `outcome_unknown`, and so does
  one that had failed and was retried by hand.
- A cancel supersedes earlier accepts and on_the_ways that are not on the wire; the newest toggle supersedes the rest.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.rules.builders import FOOD_ACTIONS, ORDER_ACTIONS, RESTAURANT_ACTIONS

from orderbridge.model import Action, ActionState, OutboxRow, Verdict
from orderbridge.rules.lifecycle import Refusal

Lane = tuple[str, str]

_PREPARING_TIME = range(1, 1441)  # minutes
_REASON_ID = range(1, 9)
_VALID_MINUTES = range(1, 10081)
_LAST_YEAR = 9000  # nobody means it, and adding minutes to the last day there is fails
_CANCELLABLE = frozenset({Action.ACCEPT, Action.ON_THE_WAY})
_TOGGLES = RESTAURANT_ACTIONS | FOOD_ACTIONS


@dataclass(frozen=True, slots=True)
class Directory:
    """Which configured account answers for what. `complete`: every account has told its restaurants."""

    accounts: tuple[str, ...]
    default: str | None
    by_restaurant: Mapping[str, Sequence[str]]
    complete: bool

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


@dataclass(frozen=True, slots=True)
class View:
    """What the plan may know of the moment."""

    now: datetime
    on_wire: Container[int]
    taken: Container[Lane]
    directory: Directory
    accept_valid: timedelta
    valid: timedelta
    longest_wait: timedelta = timedelta(hours=1)  # no wait of ours is longer


@dataclass(frozen=True, slots=True)
class Head:
    """A row whose turn it is. `account` is None for an order's row: the order knows."""

    row: OutboxRow
    lane: Lane
    account: str | None = None


@dataclass(slots=True)
class Plan:
    """Rows that end unsent, rows whose turn it is, and when to look again at the latest."""

    verdicts: list[tuple[OutboxRow, Verdict]] = field(default_factory=list)
    heads: list[Head] = field(default_factory=list)
    due: datetime | None = None

    def look_again(self, at: datetime) -> None:
        self.due = at if self.due is None else min(self.due, at)


def order_lane(payment_key: str) -> Lane:
    """The lane of one order, shared with its acknowledgements."""
    return ("order", payment_key)


def argument_problem(row: OutboxRow) -> str | None:
    """The argument that can never be right, for what slipped past the constraints; None when all are."""
    if row.action in ORDER_ACTIONS and not row.payment_key:
        return "payment_key"
    if row.action == Action.ACCEPT and row.preparing_time not in _PREPARING_TIME:
        return "preparing_time"
    if row.action == Action.CANCEL and row.reason_id not in _REASON_ID:
        return "reason_id"
    if row.action in RESTAURANT_ACTIONS and not row.restaurant_id:
        return "restaurant_id"
    if row.action in FOOD_ACTIONS and not (isinstance(row.food_id, int) and row.food_id >= 1):
        return "food_id"
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
    usual = view.accept_valid if row.action == Action.ACCEPT else view.valid
    valid = timedelta(minutes=row.valid_minutes) if row.valid_minutes else usual
    return created + valid


def plan(rows: Sequence[OutboxRow], view: View) -> Plan:
    """Decide over all unfinished rows, given by id."""
    made = Plan()
    lanes: dict[Lane, tuple[str | None, list[OutboxRow]]] = {}
    for row in rows:
        account = _account(row, view.directory)
        refusal = Refusal("bad_arguments") if argument_problem(row) else account
        if isinstance(refusal, Refusal) and row.state == ActionState.PENDING:
            retried = row.expires_utc is not None
            end = (ActionState.FAILED, "outcome_unknown") if retried else (ActionState.REFUSED, refusal.code)
            made.verdicts.append((row, Verdict(*end)))
            continue
        if isinstance(account, Refusal):
            account = row.account  # it was sent once: only an answer, a look or its expiry ends it now
        lanes.setdefault(_lane(row, account), (account, []))[1].append(row)
    for lane, (account, waiting) in lanes.items():
        _plan_lane(made, lane, account, waiting, view)
    return made


def _account(row: OutboxRow, directory: Directory) -> str | Refusal | None:
    if row.action in ORDER_ACTIONS:
        return None
    if row.action in RESTAURANT_ACTIONS:
        return directory.of_restaurant(row.restaurant_id or "", row.account)
    return directory.of_food(row)


def _lane(row: OutboxRow, account: str | None) -> Lane:
    if row.action in ORDER_ACTIONS:
        return order_lane(row.payment_key or "")
    if row.action in RESTAURANT_ACTIONS:
        return ("restaurant", row.restaurant_id or "")
    return (f"food {account or row.restaurant_id or ''}", str(row.food_id))


def _plan_lane(made: Plan, lane: Lane, account: str | None, rows: list[OutboxRow], view: View) -> None:
    alive: list[OutboxRow] = []
    for row in reversed(rows):  # from the newest, so that a row knows what comes after it
        verdict = None if row.id in view.on_wire else _unsent_end(row, alive, view)
        if verdict is None:
            alive.append(row)
        else:
            made.verdicts.append((row, verdict))
    if not alive:
        return
    # Whatever was sent goes first: a row with a lower id may have been committed later.
    oldest = alive[::-1]
    head = next((row for row in oldest if row.state == ActionState.SENDING), oldest[0])
    if head.id in view.on_wire or lane in view.taken:
        return
    for row in alive:
        made.look_again(expiry(row, view))
    if head.action not in ORDER_ACTIONS and account is None:
        return  # until the restaurants are known
    # A time further away than any wait comes from a clock that was set back.
    if head.next_attempt_utc is not None and view.now < head.next_attempt_utc <= view.now + view.longest_wait:
        made.look_again(head.next_attempt_utc)
    elif head.next_attempt_utc is not None or head.state == ActionState.PENDING:
        made.heads.append(Head(head, lane, account))


def _unsent_or_unknown(state: ActionState, *, doubtful: bool) -> Verdict:
    return Verdict(ActionState.FAILED, "outcome_unknown") if doubtful else Verdict(state, str(state))


def _unsent_end(row: OutboxRow, later: Sequence[OutboxRow], view: View) -> Verdict | None:
    waits = row.state == ActionState.PENDING
    if not waits and not row.tried:  # the POS itself calls it sent: no request of it ever left
        return Verdict(ActionState.REFUSED, "bad_arguments")
    doubtful = not waits or row.expires_utc is not None  # only `actions retry` sets it: the row was sent, and failed
    if waits and row.withdraw:
        return _unsent_or_unknown(ActionState.WITHDRAWN, doubtful=doubtful)
    if view.now >= expiry(row, view):
        return _unsent_or_unknown(ActionState.EXPIRED, doubtful=doubtful)
    if row.action in _TOGGLES and later:
        return Verdict(ActionState.SUPERSEDED, "superseded")
    if row.action in _CANCELLABLE and any(newer.action == Action.CANCEL for newer in later):
        return Verdict(ActionState.SUPERSEDED, "superseded")
    return None
