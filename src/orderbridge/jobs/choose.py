"""Which rows of the outbox may leave now, and which end unsent: one short read, then rules.outbox."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from sqlalchemy import Connection

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.jobs.account import Account
from orderbridge.model import ActionState, Attempt, KnownBy, OutboxRow, Stored, Verdict
from orderbridge.rules.lifecycle import ORDER_ACTIONS, Already, Refusal, may_send
from orderbridge.rules.outbox import Directory, Head, Lane, Plan, View, plan
from orderbridge.rules.retry import may_be_seen
from orderbridge.rules.tokens import REFUSAL_WAITS
from orderbridge.store import actions, orders, reference

LONGEST_REFUSAL_S = max(REFUSAL_WAITS)
MOST_EXPLAINED = 500  # rows of a paused account that are made to say so: keys in one IN list


@dataclass(slots=True)
class Survey:
    """What one look at the outbox found."""

    unreadable: list[int]
    plan: Plan
    ready: list[tuple[Head, str, tuple[Attempt, ...]]] = field(default_factory=list)
    waiting: list[tuple[OutboxRow, str]] = field(default_factory=list)  # rows that do not say yet for what


class Chooser:
    """Surveys the outbox for all accounts of this process."""

    def __init__(self, accounts: Mapping[str, Account], settings: config.Settings, clock: Clock) -> None:
        self._accounts = accounts
        self._settings = settings
        self._clock = clock

    def survey(self, connection: Connection, free: int, on_wire: Mapping[int, str], taken: frozenset[Lane]) -> Survey:
        """A unit of work that reads. At most `free` rows are ready.

        `on_wire` (row to account) and `taken` are as of before it.
        """
        now = self._clock.now()
        rows, unreadable = actions.read_unfinished(connection, now=now)
        if not rows:  # as it is most of the time: nothing more has to be asked
            return Survey(unreadable, Plan())
        longest = max(
            LONGEST_REFUSAL_S,
            2 * self._settings.marketplace.cooldown_seconds,
            *self._settings.actions.retry_waits_seconds,
        )
        view = View(
            now=now,
            longest_wait=timedelta(seconds=1.5 * longest),
            on_wire=on_wire,
            taken=taken,
            directory=self._directory(connection, asked=any(row.restaurant_id for row in rows)),
            accept_valid=timedelta(minutes=self._settings.actions.accept_valid_minutes),
            valid=timedelta(minutes=self._settings.actions.valid_minutes),
        )
        survey = Survey(unreadable, plan(rows, view))
        self._choose(connection, survey, free, on_wire)
        self._name_missing_accounts(connection, survey)
        return survey

    def _choose(self, connection: Connection, survey: Survey, free: int, on_wire: Mapping[int, str]) -> None:
        """From the rows whose turn it is to those that can leave: the order allows it, the account's line is up."""
        known: dict[str, Stored] = {}
        heads = survey.plan.heads
        if heads:
            known = orders.stored(connection, [head.row.payment_key for head in heads if head.row.payment_key])
        chosen: list[tuple[Head, str]] = []
        sending = Counter(on_wire.values())
        most = self._most_of_one_account()
        for head in heads:
            account = head.account
            if head.row.action in ORDER_ACTIONS:
                order = known.get(head.row.payment_key or "")
                # An unresolved row was allowed when it was first sent; only an answer or a look ends it now.
                verdict = _unsent(head.row, order) if head.row.state == ActionState.PENDING else None
                if verdict is not None:
                    survey.plan.verdicts.append((head.row, verdict))
                    continue
                account = order.account if order else None
            owner = self._accounts.get(account or "")
            if owner is None:
                continue  # its account has left the configuration: it waits, and expires
            if owner.paused() > 0:
                survey.plan.look_again(owner.retry_at())
                if head.row.state == ActionState.PENDING and len(survey.waiting) < MOST_EXPLAINED:
                    survey.waiting.append((head.row, owner.pause_code()))
            elif len(chosen) < free and sending[owner.name] < most:
                sending[owner.name] += 1
                chosen.append((head, owner.name))
        histories = actions.histories(connection, [head.row.id for head, _ in chosen if head.row.tried])
        ready = [(head, name, tuple(histories.get(head.row.id, ()))) for head, name in chosen]
        survey.ready = [
            (head, name, history)
            for head, name, history in ready
            if not (self._accounts[name].is_looking and may_be_seen(head.row.action, history))
        ]
        if survey.waiting:
            silent = actions.unexplained(connection, [row.id for row, _ in survey.waiting])
            survey.waiting = [(row, code) for row, code in survey.waiting if row.id in silent]

    def _most_of_one_account(self) -> int:
        """One account whose service hangs must not take all places."""
        places = self._settings.actions.max_in_flight
        return places if len(self._accounts) == 1 else max(1, places // 2)

    def _name_missing_accounts(self, connection: Connection, survey: Survey) -> None:
        """A row that expired because nobody answers for its order any more says so."""
        expired = {row.payment_key for row, verdict in survey.plan.verdicts if verdict.state == ActionState.EXPIRED}
        known = orders.stored(connection, [key for key in expired if key])
        orphans = {key for key, order in known.items() if order.account not in self._accounts}
        survey.plan.verdicts = [
            (row, replace(verdict, code="account_missing"))
            if verdict.state == ActionState.EXPIRED and row.payment_key in orphans
            else (row, verdict)
            for row, verdict in survey.plan.verdicts
        ]

    def _directory(self, connection: Connection, *, asked: bool) -> Directory:
        """`asked`: a row names a restaurant."""
        names = tuple(self._accounts)
        default = self._settings.default_account
        return Directory(
            accounts=names,
            default=default.name if default else None,
            by_restaurant=reference.restaurant_accounts(connection) if asked else {},
            complete=all(account.restaurants_known for account in self._accounts.values()),
        )


def _unsent(row: OutboxRow, order: Stored | None) -> Verdict | None:
    match may_send(row.action, order):
        case Refusal(code=code):
            return Verdict(ActionState.REFUSED, code)
        case Already():
            # No status: the stored one is the same, or a later end that a refusal proved, or news since this look.
            return Verdict(ActionState.DONE, "already", KnownBy.POLL)
        case None:
            return None
