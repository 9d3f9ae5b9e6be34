"""The bugs that the simulation must find: one or more for each invariant, by what they do and not by how they are made.

Each has the promise whose invariant finds it, and the scripted corner that shows it for sure, or a squall that does.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import httpx
import structlog
from sqlalchemy import update
from tests.sim.about_books import (
    AnswersAreTakenIn,
    AutoAccepts,
    ListsAreRead,
    PollsAreNoted,
    QuarantineCounts,
    TillsSeeWhatIsSo,
)
from tests.sim.about_columns import ColumnsSayWhatIsSo
from tests.sim.about_health import HealthSaysWhatIsSo
from tests.sim.about_orders import Cooldown, NoneStarves, OnlyDelivered, StoredBeforeAcknowledged
from tests.sim.about_rows import LaneOrder, MayLeave, NothingTwice, RowsEnd
from tests.sim.about_trouble import NothingLeaks, OneHarmsItself, SilenceIsAnAlarm
from tests.sim.about_verdicts import Verdicts
from tests.sim.about_waits import LeavesSoon, TokensInTime, Waits
from tests.sim.invariant import Invariant
from tests.sim.planting import Planting, always, idle, nothing
from tests.sim.simulation import Sim
from tests.sim.truth import TruthInTheEnd

from orderbridge import hiding
from orderbridge.actions import ACTIONS
from orderbridge.errors import MarketplaceError
from orderbridge.jobs import acknowledge
from orderbridge.jobs import intake as jobs_intake
from orderbridge.jobs.acknowledge import Acknowledger
from orderbridge.jobs.intake import Intake
from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.outbox import Outbox
from orderbridge.jobs.outcome_writer import OutcomeWriter
from orderbridge.jobs.reconciler import Reconciler
from orderbridge.marketplace import answers, documents
from orderbridge.marketplace.client import Client
from orderbridge.marketplace.session import Session
from orderbridge.model import Action, ActionState, Differs, KnownBy, LastChange, Outcome, Verdict
from orderbridge.net.http import Answer, Wire
from orderbridge.rules import deliveries, lifecycle, outbox_rows, retry, tokens
from orderbridge.rules.cooldown import Cooldowns
from orderbridge.rules.lifecycle import Statuses
from orderbridge.rules.queue import AccountQueues, Queue
from orderbridge.store import (
    accounts,
    actions,
    order_times,
    orders,
    quarantine,
    reference,
    retention,
    rows,
    tables,
    unfinished,
)
from orderbridge.store.accounts import Vault
from orderbridge.store.leader import LeaderLock

# Who watches, by promise: what the others see is not waited for, nor paid for.
WATCHING: dict[str, tuple[type[Invariant], ...]] = {
    "1": (StoredBeforeAcknowledged,),
    "1 and 7": (AnswersAreTakenIn,),
    "2": (OnlyDelivered,),
    "3": (Cooldown, PollsAreNoted, NoneStarves),
    "4": (RowsEnd, Waits, LeavesSoon, Verdicts),
    "5": (),
    "6": (Verdicts, NothingTwice, MayLeave, Waits),
    "7": (OneHarmsItself, QuarantineCounts),
    "8": (SilenceIsAnAlarm, HealthSaysWhatIsSo),
    "9": (NothingLeaks,),
    "login": (TokensInTime,),
    "contract": (ColumnsSayWhatIsSo, AutoAccepts, TillsSeeWhatIsSo, ListsAreRead),
    "1, 2 and 6": (TruthInTheEnd,),
}
FIRST = 1002  # the seed that shows most of them


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug, the promise that it breaks, and the corner or the squall in which that shows."""

    promise: str
    plant: Callable[[Planting], None]
    seed: int = FIRST
    corner: str = ""

    def watchers(self) -> list[Invariant]:
        """LaneOrder is always there: it finds out which row a request is for."""
        return [LaneOrder(), *(invariant() for invariant in WATCHING[self.promise])]

    def is_found(self, violations: list[str]) -> bool:
        return any(violation.startswith(f"promise {self.promise}:") for violation in violations)


BUGS: dict[str, Bug] = {}


def bug(promise: str, seed: int = FIRST, corner: str = "") -> Callable[[Callable[[Planting], None]], None]:
    def enter(plant: Callable[[Planting], None]) -> None:
        BUGS[plant.__name__] = Bug(promise, plant, seed, corner)

    return enter


def _muted(plant: Planting, event: str) -> None:
    """The program does not say it."""
    plant.method(Sim, "write", lambda true: lambda sim, line: None if f'"{event}"' in line else true(sim, line))


def _decided(plant: Planting, otherwise: Callable[..., Any]) -> None:
    """`otherwise(decision, action, history, now)` is what becomes of a row after an answer."""
    plant.instead(
        retry.decide,
        lambda true: (
            lambda action, history, **how: otherwise(true(action, history, **how), action, list(history), how["now"])
        ),
    )


def _ended(plant: Planting, change: Callable[..., Any]) -> None:
    """`change(true, row, later, view)` is how a row ends unsent."""
    plant.instead(outbox_rows.unsent_end, lambda true: lambda row, later, view: change(true, row, list(later), view))


# ---- promise 1: no acknowledged order is ever lost -------------------------------------------------------------------


@bug("1", corner="a_list_longer_than_one_question_shows_orders_in_doubt")
def an_order_is_acknowledged_and_not_written(plant: Planting) -> None:
    plant.instead(orders.insert_new, nothing)


@bug("1", corner="the_clock_is_set_back_while_a_row_waits")
def the_document_is_not_kept(plant: Planting) -> None:
    plant.value(orders, "without_nul", lambda _: "")


@bug("1 and 7", corner="an_accept_expires_unresolved_while_a_list_is_on_its_way")
def a_bad_document_stops_the_poll(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        async def take_in(self: Intake, documents: Any, *rest: Any) -> None:
            if all(document.reason is None for document in documents):
                await true(self, documents, *rest)

        return take_in

    plant.method(Intake, "take_in", make)


@bug("1 and 7", corner="a_complete_is_lost_and_no_list_tells_of_it")
def one_of_the_changed_orders_is_left_out(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        def sort(*of: Any, **how: Any) -> Any:
            made = true(*of, **how)
            return replace(made, changed=made.changed[1:])

        return sort

    plant.instead(deliveries.sort, make)


@bug("1 and 7", corner="an_order_is_shown_again_as_it_was_and_then_never_again")
def what_did_not_change_is_not_acknowledged(plant: Planting) -> None:
    plant.instead(deliveries.sort, lambda true: lambda *of, **how: replace(true(*of, **how), unchanged=[]))


@bug("1 and 7", seed=1003)
def a_document_that_is_no_order_is_forgotten(plant: Planting) -> None:
    plant.instead(quarantine.keep, always(result=False))


@bug("1 and 7", seed=1008)
def an_order_of_another_account_is_not_told(plant: Planting) -> None:
    _muted(plant, "order.foreign_delivery")


# ---- promise 2: only what was just delivered is acknowledged ---------------------------------------------------------


@bug("2")
def acknowledged_again_after_a_failure(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        async def twice(self: Client, key: str, timeout_s: float) -> None:
            try:
                await true(self, key, timeout_s)
            except MarketplaceError:
                await true(self, key, timeout_s)

        return twice

    plant.method(Client, "acknowledge", make)


@bug("2", corner="an_accept_expires_unresolved_while_a_list_is_on_its_way")
def acknowledged_beside_an_action(plant: Planting) -> None:
    plant.method(Lanes, "hold_for_poll", lambda _: lambda lanes, key, began: lanes.take(outbox_rows.order_lane(key)))


@bug("2", corner="a_list_longer_than_one_question_shows_orders_in_doubt")
def acknowledged_while_unresolved(plant: Planting) -> None:
    plant.instead(orders.with_unresolved_rows, always(set()))


@bug("2", corner="a_list_longer_than_one_question_shows_orders_in_doubt")
def of_a_long_list_only_the_last_unresolved_rows_are_seen(plant: Planting) -> None:
    plant.instead(orders.with_unresolved_rows, lambda true: lambda tx, keys: true(tx, list(keys)[-rows.BATCH :]))


@bug("2", seed=1064)
def an_acknowledgement_leaves_late(plant: Planting) -> None:
    plant.value(acknowledge, "ACKNOWLEDGE_WITHIN_S", 60.0)
    plant.value(jobs_intake, "ACKNOWLEDGE_WITHIN_S", 60.0)


@bug("2", corner="an_accept_expires_unresolved_while_a_list_is_on_its_way")
def a_row_given_up_by_its_expiry_leaves_its_lane_untouched(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        def with_lanes(self: Any, ends: Any) -> Any:
            free, lanes = true(self, ends)
            for lane in lanes:
                self._lanes.free(lane)
            return free, []

        return with_lanes

    plant.method(Outbox, "_with_lanes", make)


# ---- promise 3: get-current is never called inside its cooldown ------------------------------------------------------


@bug("3", corner="the_program_ends_while_a_row_is_on_the_wire")
def a_restart_forgets_the_cooldown(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        def reserve(tx: Any, who: str, *, now: Any, until: Any, longest: Any) -> None:
            tx.execute(update(tables.accounts).values(next_poll_utc=None))
            true(tx, who, now=now, until=until, longest=longest)

        return reserve

    plant.instead(accounts.reserve_poll, make)


@bug("3", seed=1007)
def the_next_poll_is_not_noted_when_the_answer_is_in(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        return lambda tx, who, **values: true(tx, who, **{n: v for n, v in values.items() if n != "next_poll_utc"})

    plant.instead(accounts.note_poll, make)


@bug("3", corner="rows_are_written_while_an_accept_waits")
def the_poll_waits_twice_as_long(plant: Planting) -> None:
    plant.method(
        Cooldowns, "ended", lambda true: lambda self, who, how, now: true(self, who, how, now + self.cooldown_s)
    )


@bug("3", seed=1003)
def two_daemons_work_at_once(plant: Planting) -> None:
    plant.method(LeaderLock, "take", always(result=True))


# ---- promise 4: every row ends ---------------------------------------------------------------------------------------


@bug("4", corner="a_row_is_too_old_before_its_turn_comes")
def no_row_is_ever_too_old(plant: Planting) -> None:
    plant.instead(outbox_rows.expiry, lambda true: lambda row, view: true(row, view) + timedelta(days=30))


@bug("4", corner="a_row_is_too_old_before_its_turn_comes")
def valid_minutes_are_ignored(plant: Planting) -> None:
    plant.instead(outbox_rows.expiry, lambda true: lambda row, view: true(replace(row, valid_minutes=None), view))


@bug("4", corner="the_program_ends_while_a_row_is_on_the_wire")
def a_look_resolves_nothing(plant: Planting) -> None:
    plant.method(Reconciler, "resolve", idle)


@bug("4")
def a_verdict_has_no_words(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        return lambda tx, ends, now: true(tx, [(row, replace(end, text=None)) for row, end in ends], now)

    plant.instead(actions.finish, make)


@bug("4", corner="the_service_hangs_for_one_of_two_accounts")
def nobody_wakes_the_outbox(plant: Planting) -> None:
    plant.method(Outbox, "wake", nothing)


@bug("4", corner="the_service_hangs_for_one_of_two_accounts")
def an_account_whose_service_hangs_takes_all_places(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, places, on_wire, _, *rest: true(self, places, on_wire, places, *rest)

    plant.method(AccountQueues, "take", make)


@bug("4", corner="accepts_are_answered_500_502_and_429")
def all_waits_are_the_longest(plant: Planting) -> None:
    plant.method(
        OutcomeWriter, "_policy", lambda true: lambda self: replace(true(self), retry_waits=(60.0, 60.0, 60.0))
    )


@bug("4", corner="the_program_ends_while_a_row_is_on_the_wire")
def what_was_on_the_wire_at_a_crash_is_forgotten(plant: Planting) -> None:
    plant.instead(unfinished.unfinished_attempts, always([]))


# ---- promise 5: in the order of their ids ----------------------------------------------------------------------------


@bug("5", seed=1003)
def the_poll_does_not_wait_for_its_acknowledgements(plant: Planting) -> None:
    def make(_: Callable[..., Any]) -> Callable[..., Any]:
        async def finish(self: Acknowledger, answer: Any) -> None:
            self.release(answer, set(answer.held))

        return finish

    plant.method(Acknowledger, "finish", make)


@bug("5", corner="rows_are_written_while_an_accept_waits")
def the_newest_row_goes_first(plant: Planting) -> None:
    plant.method(Queue, "_review", lambda true: lambda self, waiting, made: true(self, waiting[::-1], made))


# ---- promise 6: nothing is sent again after a definite answer --------------------------------------------------------


@bug("6", corner="a_cancel_is_refused_beside_a_complete_of_ours")
def a_refusal_is_tried_again(plant: Planting) -> None:
    def otherwise(made: Any, _: Action, history: list[Any], now: Any) -> Any:
        return retry.RetryAt(now, history[-1].code) if history[-1].outcome == Outcome.REFUSED else made

    _decided(plant, otherwise)


@bug("6", corner="a_cancel_is_refused_beside_a_complete_of_ours")
def a_refusal_after_doubt_waits_for_no_look(plant: Planting) -> None:
    def otherwise(made: Any, _: Action, history: list[Any], __: Any) -> Any:
        last = history[-1]
        if last.outcome == Outcome.REFUSED and isinstance(made, retry.AwaitPoll):
            return Verdict(ActionState.REFUSED, last.code, KnownBy.ANSWER, None, last.http_status)
        return made

    _decided(plant, otherwise)


@bug("6", corner="a_cancel_is_refused_beside_a_complete_of_ours")
def what_waits_for_a_look_is_sent(plant: Planting) -> None:
    def otherwise(made: Any, _: Action, __: list[Any], now: Any) -> Any:
        return retry.RetryAt(now + timedelta(seconds=5), made.code) if isinstance(made, retry.AwaitPoll) else made

    _decided(plant, otherwise)


@bug("6", corner="the_program_ends_while_a_row_is_on_the_wire")
def a_fifth_request(plant: Planting) -> None:
    plant.instead(retry.counted, lambda true: lambda history: true(history) - 1)


@bug("6", corner="a_list_longer_than_one_question_shows_orders_in_doubt")
def an_accept_is_sent_again_without_a_look(plant: Planting) -> None:
    def otherwise(made: Any, action: Action, history: list[Any], now: Any) -> Any:
        silent = action == Action.ACCEPT and history[-1].outcome == Outcome.UNKNOWN and isinstance(made, retry.RetryAt)
        return retry.RetryAt(now + timedelta(seconds=5), made.code) if silent else made

    _decided(plant, otherwise)


@bug("6", corner="a_complete_is_lost_and_no_list_tells_of_it")
def a_row_fails_while_the_login_is_refused(plant: Planting) -> None:
    def otherwise(made: Any, _: Action, history: list[Any], __: Any) -> Any:
        last = history[-1]
        return Verdict(ActionState.FAILED, last.code) if last.outcome == Outcome.NOT_SENT else made

    _decided(plant, otherwise)


@bug("6", corner="rows_are_written_while_an_accept_waits")
def a_429_is_not_waited_out(plant: Planting) -> None:
    def otherwise(made: Any, _: Action, history: list[Any], now: Any) -> Any:
        limited = history[-1].outcome == Outcome.RATE_LIMITED
        return retry.RetryAt(now + timedelta(seconds=2), made.code) if limited else made

    _decided(plant, otherwise)


@bug("6", corner="a_complete_is_lost_and_no_list_tells_of_it")
def all_waits_are_the_first(plant: Planting) -> None:
    plant.method(OutcomeWriter, "_policy", lambda true: lambda self: replace(true(self), retry_waits=(2.0, 2.0, 2.0)))


@bug("6", corner="accepts_are_answered_500_502_and_429")
def a_502_is_a_plain_failure(plant: Planting) -> None:
    plant.value(answers, "_STATUSES", {code: kind for code, kind in answers._STATUSES.items() if code != 502})


@bug("6", corner="a_complete_is_lost_and_no_list_tells_of_it")
def absence_alone_proves_a_complete(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        def proof(action: Action, history: Any, order: Any, seen: int | None, **how: Any) -> Any:
            gone = action == Action.COMPLETE and seen is None
            return retry.Proof.DONE if gone else true(action, history, order, seen, **how)

        return proof

    plant.instead(retry.proof, make)


@bug("6", corner="a_cancel_is_refused_beside_a_complete_of_ours")
def a_cancel_is_proved_by_absence_beside_our_own_complete(plant: Planting) -> None:
    plant.instead(actions.ends, always(set()))


@bug("6", corner="rows_are_written_while_an_accept_waits")
def a_cancel_replaces_nothing(plant: Planting) -> None:
    _ended(plant, lambda true, row, later, view: true(row, [n for n in later if n.action != Action.CANCEL], view))


@bug("6", corner="the_service_hangs_for_one_of_two_accounts")
def a_toggle_replaces_those_of_another_menu(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        return lambda row, account: ("food", str(row.food_id)) if row.food_id else true(row, account)

    plant.instead(outbox_rows.lane_of, make)


@bug("6", corner="the_service_hangs_for_one_of_two_accounts")
def every_toggle_is_sent(plant: Planting) -> None:
    _ended(plant, lambda true, row, later, view: true(row, later if row.payment_key else [], view))


@bug("6", corner="a_row_is_asked_back_between_reading_and_claiming")
def nothing_can_be_asked_back(plant: Planting) -> None:
    _ended(plant, lambda true, row, later, view: true(replace(row, withdraw=False), later, view))


@bug("6", corner="a_row_is_asked_back_between_reading_and_claiming")
def a_withdraw_between_reading_and_claiming_is_not_seen(plant: Planting) -> None:
    asked_back: set[int] = set()

    def unseen(true: Callable[..., Any]) -> Callable[..., Any]:
        def claim(*of: Any) -> Any:
            found, held = true(*of)
            asked_back.update(row.id for row in found.rows if row.withdraw)
            return replace(found, rows=[replace(row, withdraw=False) for row in found.rows]), held

        return claim

    def anyhow(true: Callable[..., Any]) -> Callable[..., Any]:
        def start(tx: Any, claims: Any, now: Any) -> None:
            true(tx, [(replace(row, withdraw=row.id in asked_back), number) for row, number in claims], now)

        return start

    plant.instead(unfinished.claim, unseen)
    plant.instead(actions.start, anyhow)


@bug("6", corner="an_accept_expires_unresolved_while_a_list_is_on_its_way")
def what_is_unresolved_expires(plant: Planting) -> None:
    def change(true: Callable[..., Any], row: Any, later: list[Any], view: Any) -> Any:
        made = true(row, later, view)
        doubtful = made is not None and made.code == "outcome_unknown"
        return Verdict(ActionState.EXPIRED, "expired") if doubtful else made

    _ended(plant, change)


@bug("6", corner="an_accept_expires_unresolved_while_a_list_is_on_its_way")
def valid_minutes_are_seconds(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        return lambda row, view: true(row, view) - timedelta(seconds=59 * (row.valid_minutes or 0))

    plant.instead(outbox_rows.expiry, make)


@bug("6", seed=1004)
def a_status_that_does_not_fit_is_refused(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        def may_send(action: Action, stored: Any) -> Any:
            misfit = stored is not None and action == Action.COMPLETE and stored.service_status_id == 1
            return lifecycle.Refusal("order_cancelled") if misfit else true(action, stored)

        return may_send

    plant.instead(lifecycle.may_send, make)


@bug("6")
def everything_is_sent(plant: Planting) -> None:
    plant.instead(lifecycle.may_send, always(None))


@bug("6", corner="rows_are_written_while_an_accept_waits")
def every_order_is_cancelled_for_reason_1(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        def act(self: Client, action: Action, key: str, argument: int | None = None) -> Any:
            return true(self, action, key, 1 if action == Action.CANCEL else argument)

        return act

    plant.method(Client, "act", make)


@bug("6")
def what_was_not_asked_was_answered(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        def order_end(*of: Any) -> Any:
            made = true(*of)
            return replace(made, known_by=KnownBy.ANSWER) if made is not None and made.code == "already" else made

        return order_end

    plant.instead(outbox_rows.order_end, make)


@bug("1, 2 and 6", corner="a_complete_is_lost_and_no_list_tells_of_it")
def silence_counts_as_done(plant: Planting) -> None:
    def otherwise(made: Any, action: Action, history: list[Any], _: Any) -> Any:
        silent = history[-1].outcome == Outcome.UNKNOWN
        return Verdict(ActionState.DONE, None, KnownBy.ANSWER, ACTIONS[action].target) if silent else made

    _decided(plant, otherwise)


# ---- promises 7 to 9 -------------------------------------------------------------------------------------------------


@bug("7", seed=1033)
def a_bad_row_stops_the_outbox(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        def newest(*of: Any) -> Any:
            found = true(*of)
            assert not found.unreadable
            return found

        return newest

    plant.instead(unfinished.newest, make)


@bug("7", seed=1021)
def an_error_of_the_database_ends_the_daemon(plant: Planting) -> None:
    plant.method(Outbox, "safe_cycle", lambda _: Outbox.cycle)


@bug("7", seed=1003)
def a_document_is_counted_twice(plant: Planting) -> None:
    plant.instead(quarantine.keep, lambda true: lambda *of: (true(*of), true(*of))[0])


@bug("7", corner="the_clock_is_set_back_while_a_row_waits")
def a_time_from_before_the_clock_was_set_back_is_believed(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        def begin(self: Queue, view: Any) -> None:
            view.longest_wait = timedelta(days=30)
            true(self, view)

        return begin

    plant.method(Queue, "__init__", make)


@bug("8")
def a_dead_line_is_not_told(plant: Planting) -> None:
    _muted(plant, "poll.failed")


@bug("8")
def a_recovery_is_not_told(plant: Planting) -> None:
    _muted(plant, "poll.recovered")


@bug("8", seed=1009)
def a_refused_login_is_not_told(plant: Planting) -> None:
    _muted(plant, "login.refused")


@bug("8", corner="accepts_are_answered_500_502_and_429")
def an_accept_that_failed_is_no_problem(plant: Planting) -> None:
    _muted(plant, "accept_failed")


@bug("8", corner="an_accept_expires_unresolved_while_a_list_is_on_its_way")
def an_unanswered_accept_is_no_alarm(plant: Planting) -> None:
    plant.method(
        Sim,
        "write",
        lambda true: (
            lambda sim, line: true(
                sim,
                line.replace('"error"', '"info"') if '"action.expired"' in line or '"action.failed"' in line else line,
            )
        ),
    )


@bug("9", corner="a_cancel_is_refused_beside_a_complete_of_ours")
def the_token_is_logged(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        def save(self: Vault, tx: Any, token: Any) -> None:
            structlog.get_logger().info("login.kept", grant=token.access_token)
            true(self, tx, token)

        return save

    plant.instead(hiding.hide, nothing)
    plant.method(Vault, "save", make)


@bug("9", seed=1004)
def what_an_answer_says_is_logged(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        def record_outcome(self: Session, error: Any, *rest: Any) -> None:
            structlog.get_logger().info("account.heard", said=getattr(error, "detail", ""))
            true(self, error, *rest)

        return record_outcome

    plant.method(Session, "record_outcome", make)


@bug("9", corner="a_row_is_asked_back_between_reading_and_claiming")
def the_token_is_kept_readable(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        def save(self: Vault, tx: Any, token: Any) -> None:
            true(self, tx, token)
            tx.execute(update(tables.tokens).values(ciphertext=token.access_token))

        return save

    plant.method(Vault, "save", make)


@bug("9", seed=1004)
def redirects_are_followed(plant: Planting) -> None:
    def make(_: Callable[..., Any]) -> Callable[..., Any]:
        async def follow(self: Wire, request: httpx.Request, *_: Any) -> Answer:
            client = httpx.AsyncClient(transport=self._transport, follow_redirects=True)
            response = await client.send(request)
            return Answer(response.status_code, response.headers.get("content-type", ""), response.content)

        return follow

    plant.method(Wire, "_exchange", make)


# ---- the login -------------------------------------------------------------------------------------------------------


@bug("login")
def a_refused_token_is_used_again(plant: Planting) -> None:
    def make(_: Callable[..., Any]) -> Callable[..., Any]:
        async def replace_nothing(self: Session, refused: Any, *_: Any) -> Any:
            return refused

        return replace_nothing

    plant.method(Session, "replace", make)


@bug("login", corner="the_program_ends_while_a_row_is_on_the_wire")
def a_login_for_each_request(plant: Planting) -> None:
    plant.method(Session, "token", lambda _: Session.renew)


@bug("login")
def the_kept_token_is_not_used(plant: Planting) -> None:
    plant.method(Vault, "open", nothing)


@bug("login", corner="the_service_hangs_for_one_of_two_accounts")
def a_time_zone_is_believed(plant: Planting) -> None:
    plant.instead(tokens.expires, lambda true: lambda said, received, zone: true(said, received - timedelta(3), zone))


@bug("login", seed=1009)
def a_refused_login_is_tried_again_at_once(plant: Planting) -> None:
    plant.instead(tokens.refusal_wait, always(0.1))


# ---- the contract ----------------------------------------------------------------------------------------------------


@bug("contract", corner="a_complete_is_lost_and_no_list_tells_of_it")
def a_verdict_does_not_write_the_status(plant: Planting) -> None:
    plant.instead(orders.set_status, nothing)


@bug("contract", corner="an_accept_expires_unresolved_while_a_list_is_on_its_way")
def an_echo_is_news(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        def merge(*of: Any, **how: Any) -> Any:
            made = true(*of, **how)
            return replace(made, last_change=made.last_change or LastChange.STATUS)

        return merge

    plant.instead(lifecycle.merge, make)


@bug("contract", seed=1006)
def the_lines_stay_as_they_were(plant: Planting) -> None:
    plant.instead(lifecycle.merge, lambda true: lambda *of, **how: replace(true(*of, **how), differs=Differs.NOTHING))


@bug("contract", corner="the_clock_is_set_back_while_a_row_waits")
def prepaid_orders_are_collected_again(plant: Planting) -> None:
    plant.instead(documents.amount_due, lambda _: lambda total, code: total if code else None)


@bug("contract", seed=1018)
def any_remark_of_a_payment_is_dropped(plant: Planting) -> None:
    plant.instead(documents.payment_code, lambda true: lambda name, codes: true(name and name.split("(")[0], codes))


@bug("contract")
def a_doubt_never_goes(plant: Planting) -> None:
    plant.instead(lifecycle.without_doubt, lambda _: lambda problem: problem)


@bug("contract", corner="an_order_is_shown_again_as_it_was_and_then_never_again")
def silence_ends_nothing(plant: Planting) -> None:
    plant.instead(order_times.silent, always([]))


@bug("contract", seed=1009)
def retention_keeps_the_notes_of_the_lines(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        def blank_old(tx: Any, keys: Any, **how: Any) -> Any:
            blanked = true(tx, keys, **how)
            tx.execute(update(tables.items).where(tables.items.c.payment_key.in_(blanked)).values(note="kept"))
            return blanked

        return blank_old

    plant.instead(retention.blank_old, make)


@bug("contract", corner="an_order_is_shown_again_as_it_was_and_then_never_again")
def an_ok_is_not_noted(plant: Planting) -> None:
    plant.instead(orders.mark_acknowledged, nothing)


@bug("contract", seed=1007)
def a_list_shows_an_order_twice_and_the_last_one_counts(plant: Planting) -> None:
    plant.method(
        Statuses, "latest", lambda _: lambda self, documents: {d.payment_key: d for d in documents if d.payment_key}
    )


@bug("contract", seed=1003)
def a_scheduled_order_is_accepted(plant: Planting) -> None:
    plant.instead(deliveries.accepts_itself, lambda true: lambda order, **_: true(order, scheduled_too=True))


@bug("contract", corner="rows_are_written_while_an_accept_waits")
def the_column_of_the_till_is_written(plant: Planting) -> None:
    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        def update_delivered(tx: Any, known: Any, *rest: Any) -> None:
            true(tx, known, *rest)
            mine = tables.orders.c.payment_key == known.payment_key
            tx.execute(update(tables.orders).where(mine).values(pos_revision=0))

        return update_delivered

    plant.instead(orders.update_delivered, make)


@bug("contract", seed=1019)
def the_status_of_a_restaurant_is_not_written(plant: Planting) -> None:
    plant.instead(reference.set_restaurant_status, nothing)
