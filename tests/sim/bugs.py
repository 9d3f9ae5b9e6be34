"""The bugs that the simulation must find: one or more for each judge.

Each has the promise whose judge finds it, the corner or the seed that shows it, what it replaces by what, and in
found_by.toml a unit test that finds it, too. `./run sim --bugs` tries them all.
"""

import os
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import structlog
from sqlalchemy import delete, update
from tests.sim.about_orders import StoredBeforeAcknowledged
from tests.sim.corners import seed_of
from tests.sim.judge import Judge
from tests.sim.judges import WATCHING_RESTORES, watching
from tests.sim.machine import simulate
from tests.sim.plan import Plan, plan_for
from tests.sim.planting import Plant, always, idle, nothing

from orderbridge import hiding
from orderbridge.actions import ACTIONS
from orderbridge.jobs import acknowledge, outcome_writer, reimport
from orderbridge.jobs import intake as jobs_intake
from orderbridge.jobs import outbox as jobs_outbox
from orderbridge.jobs.acknowledge import Acknowledger
from orderbridge.jobs.closures import Closures
from orderbridge.jobs.intake import Intake
from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.outbox import Outbox
from orderbridge.jobs.reconciler import Reconciler
from orderbridge.jobs.reimport import Decision, Reimport
from orderbridge.marketplace import documents
from orderbridge.marketplace.client import Client
from orderbridge.marketplace.session import Session
from orderbridge.model import Action, ActionState, Attempt, Differs, KnownBy, Outcome, Verdict
from orderbridge.net.http import Answer, Wire

from orderbridge.rules import (  # isort: skip
    closures, deliveries, health, lifecycle, outbox_rows, poll_ends, problems, retry, tokens,
)  # fmt: skip
from orderbridge.rules.closures import Step
from orderbridge.rules.cooldown import Cooldowns
from orderbridge.rules.outbox_rows import Cause, Standing
from orderbridge.rules.problems import Code
from orderbridge.rules.queue import AccountQueues, Queue

from orderbridge.store import (  # isort: skip
    accounts, actions, foods, high_water, journal, order_times, orders, problem_queries, problem_rows, quarantine,
    reference, retention, rows, tables, unfinished,
)  # fmt: skip
from orderbridge.store import closures as store_closures
from orderbridge.store.accounts import Vault
from orderbridge.store.dialects import sqlite, sqlite_checks
from orderbridge.store.leader import LeaderLock
from orderbridge_board import cards
from orderbridge_fleet import advisory_locks, membership
from orderbridge_fleet import buckets as fleet_buckets
from orderbridge_fleet.membership import Membership
from orderbridge_fleet.replica import Replica

FIRST = 1002  # the seed that shows most of them
# Where to search if a bug no longer shows in its corner or seed.
OTHERS = dict.fromkeys(("squall", "hands"), range(FIRST, FIRST + 20)) | dict.fromkeys(
    ("fleet", "power", "restore"), range(1, 13)
)

# Corners.
ASKED_BACK = "a_row_is_asked_back_between_reading_and_claiming"
CLOCK = "the_clock_is_set_back_while_a_row_waits"
CRASH = "the_program_ends_while_a_row_is_on_the_wire"
EXPIRY = "an_accept_expires_unresolved_while_a_list_is_on_its_way"
FAILURES = "accepts_are_answered_500_502_and_429"
HANGS = "the_service_hangs_for_one_of_two_accounts"
LONG_LIST = "a_list_longer_than_one_question_shows_orders_in_doubt"
LOST = "a_complete_is_lost_and_no_list_tells_of_it"
REFUSED = "a_cancel_is_refused_beside_a_complete_of_ours"
SHOWN_AGAIN = "an_order_is_shown_again_as_it_was_and_then_never_again"
KEYLESS = "a_list_shows_an_order_in_doubt_without_its_key"
ON_ITS_WAY = "an_accept_in_doubt_may_be_sent_again_while_a_list_is_on_its_way"
PARTS = "a_list_is_too_large_and_comes_in_parts"
TOO_OLD = "a_row_is_too_old_before_its_turn_comes"
WAITING = "rows_are_written_while_an_accept_waits"
LIST_BEFORE = "a_list_from_before_two_accepts_lacks_one_of_their_orders"
NO_LIST = "no_list_is_ever_good"
OK_LATE = "a_row_is_written_before_an_ok_is_noted"
TOKEN_ENDS = "a_row_is_written_just_before_a_token_expires"
MUCH_FAILS = "much_is_refused_given_up_or_late"
FULL = "documents_without_a_key_fill_the_list"


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug, the promise that it breaks, and the corner or the seed of a kind in which that shows."""

    promise: str
    where: str | int
    plants: tuple[Plant, ...]
    kind: str = "squall"

    def plans(self) -> list[Plan]:
        """The corner or the seed that shows the bug, and others, in case it no longer does."""
        if isinstance(self.where, str):
            return [plan_for(seed_of(self.where), "corner")]
        return [plan_for(seed, self.kind) for seed in dict.fromkeys([self.where, *OTHERS[self.kind]])]

    def is_found_somewhere(self) -> bool:
        for plan in self.plans():
            with tempfile.TemporaryDirectory(prefix="orderbridge-sim-") as folder:
                if self.is_found(simulate(plan, Path(folder), self.watchers()).violations):
                    return True
        return False

    def watchers(self) -> list[Judge]:
        if self.kind == "restore":
            return [judge() for judge in WATCHING_RESTORES]
        return watching("5", self.promise)

    def is_found(self, violations: list[str]) -> bool:
        return any(violation.startswith(f"promise {self.promise}:") for violation in violations)


def decided(outcome: Outcome, otherwise: Callable[..., Any]) -> Plant:
    """`otherwise(decision, action, attempt, now)` is what becomes of a row after an attempt with that outcome."""

    def decide(true: Any, action: Action, history: Any, **how: Any) -> Any:
        made, last = true(action, history, **how), history[-1]
        return otherwise(made, action, last, how["now"]) if last.outcome == outcome else made

    return retry.decide, decide


def unsent(change: Callable[..., Any]) -> Plant:
    """`change(true, row, later, view)` is how a row ends unsent."""
    return outbox_rows.unsent_end, lambda true, row, later, view: change(true, row, list(later), view)


def made_otherwise(change: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda true, *of, **how: change(true(*of, **how))


def muted(event: str) -> Plant:
    def process(true: Any, self: Any, method: str, name: str, facts: Any) -> Any:
        if name == event:
            raise structlog.DropEvent
        return true(self, method, name, facts)

    return (structlog.BoundLoggerBase, "_process_event"), process


BUGS: dict[str, Bug] = {}


def bugs(promise: str, kind: str = "squall", **of: tuple[Any, ...]) -> None:
    """Each bug is its plant, a target and what replaces it, and where it shows, if that is not the usual seed."""
    for name, (target, other, *where) in of.items():
        BUGS[name] = Bug(promise, where[0] if where else FIRST, ((target, other),), kind)


def bug(
    promise: str, target: object, where: str | int = FIRST, *more: Plant, kind: str = "squall"
) -> Callable[[Callable[..., Any]], None]:
    """The function below replaces the target, and gets the true one as its first argument."""

    def enter(other: Callable[..., Any]) -> None:
        BUGS[other.__name__] = Bug(promise, where, ((target, other), *more), kind)

    return enter


bugs(
    "fleet", "fleet",
    a_transaction_is_not_fenced=((Membership, "fence"), nothing, 1),
    the_lease_is_not_checked_before_sending=((Replica, "may_send"), always(result=True), 1),
    the_lease_is_not_renewed=(
        (Replica, "may_send"), lambda true, self: true(self) and self._clock.monotonic() < 120, 4),
    a_bucket_is_taken_from_one_that_lives=((fleet_buckets, "GRACE_S"), 0.0, 1),
    a_bucket_is_taken_too_late=((fleet_buckets, "GRACE_S"), 45.0, 1),
    the_server_does_not_end_a_silent_session=((membership, "SETTINGS"), (), 1),
    a_bucket_is_released_with_its_accounts_at_work=(
        (Replica, "_release"), lambda true, self, bucket, _: true(self, bucket, ()), 1),
    a_replica_has_what_others_should_have=((Replica, "_mine"), lambda _, self: self._beat.held, 1),
    the_requests_of_other_replicas_are_recovered=((jobs_outbox, "is_ours"), always(result=True), 3),
    a_request_for_a_shared_restaurant_is_lost=((Outbox, "_may_be_on_the_wire"), always(result=False), 153000464),
)  # fmt: skip


@bug("fleet", (Membership, "_take"), 9, kind="fleet")
def a_locked_bucket_counts_as_taken(true: Any, self: Membership, connection: Any, take: Any) -> None:
    before = set(self._held)
    true(self, connection, take)
    lost = sorted(set(take) - self._held - before)
    self._held |= frozenset(advisory_locks.lock(connection, lost))


@bug("fleet", (Replica, "_beat_once"), 1, kind="fleet")
async def the_lease_counts_from_the_answer(true: Any, self: Replica) -> None:
    await true(self)
    self.heard = self._clock.monotonic()


bugs("1", the_document_is_not_kept=((orders, "payload_of"), always(""), CLOCK))
bugs(
    "1 and 7",
    what_did_not_change_is_not_acknowledged=(
        deliveries.sort, made_otherwise(lambda made: replace(made, unchanged=[])), SHOWN_AGAIN),
    a_stored_order_stays_in_quarantine=(quarantine.resolve, nothing, "refused_orders_change_and_are_stored_by_hand"),
    a_document_that_is_no_order_is_forgotten=(quarantine.keep, always(result=False), 1003),
    an_order_of_another_account_is_not_told=(*muted("order.foreign_delivery"), "an_order_is_listed_for_two_accounts"),
)  # fmt: skip


bugs(
    "2",
    acknowledged_beside_an_action=(
        (Lanes, "hold_for_poll"), lambda _, lanes, key, began: lanes.take(outbox_rows.order_lane(key)), EXPIRY),
    of_a_long_list_only_the_last_unresolved_rows_are_seen=(
        orders.with_unresolved_rows, lambda true, tx, keys: true(tx, list(keys)[-rows.BATCH :]), LONG_LIST),
)  # fmt: skip
BUGS["an_acknowledgement_leaves_late"] = Bug(
    "2", 1064, tuple(((module, "ACKNOWLEDGE_WITHIN_S"), 60.0) for module in (acknowledge, jobs_intake))
)


bugs(
    "3",
    the_next_poll_is_not_noted_when_the_answer_is_in=(
        accounts.note_poll,
        lambda true, tx, who, **values: true(tx, who, **{n: v for n, v in values.items() if n != "next_poll_utc"}),
        1007),
    a_good_poll_of_one_account_is_noted_for_all=(
        accounts.note_successes, lambda true, tx, polls: (true(tx, polls), tx.execute(
            update(tables.accounts).values(last_poll_ok_utc=polls[0].polled, state="ok", last_error=None)))[0], HANGS),
    the_poll_waits_twice_as_long=(
        (Cooldowns, "ended"), lambda true, self, who, how, now: true(self, who, how, now + self.cooldown_s), WAITING),
    the_next_poll_leaves_after_a_second=((Cooldowns, "configure"), lambda true, self, scope, _: true(self, scope, 1.0)),
    two_daemons_work_at_once=((LeaderLock, "take"), always(result=True), 1003),
)  # fmt: skip


@bug("3", accounts.reserve_poll, CRASH)
def a_restart_forgets_the_cooldown(true: Any, tx: Any, who: str, **how: Any) -> None:
    tx.execute(update(tables.accounts).values(next_poll_utc=None))
    true(tx, who, **how)


bugs(
    "4",
    valid_minutes_are_ignored=(
        outbox_rows.expiry, lambda true, row, view: true(replace(row, valid_minutes=None), view), TOO_OLD),
    a_verdict_has_no_words=(
        actions.finish,
        lambda true, tx, ends, now: true(tx, [(row, replace(end, text=None)) for row, end in ends], now)),
    a_set_clock_reviews_nothing=((Queue, "review_all"), nothing, CLOCK),
    nobody_wakes_the_outbox=((Outbox, "wake"), nothing, HANGS),
    an_account_whose_service_hangs_takes_all_places=(
        (AccountQueues, "take"),
        lambda true, self, places, in_flight, _, *rest: true(self, places, in_flight, places, *rest), HANGS),
    a_retried_row_keeps_its_attempts=(
        actions.retry, lambda true, tx, row, *rest: true(tx, row, *rest)
        and bool(tx.execute(update(tables.actions).where(tables.actions.c.id == row).values(attempts=4)).rowcount),
        "a_row_is_retried_while_a_newer_one_is_in_doubt"),
    what_was_on_the_wire_at_a_crash_is_forgotten=(unfinished.unfinished_attempts, always([]), CRASH),
)  # fmt: skip
bugs(
    "5",
    the_newest_row_goes_first=(
        (Queue, "_review"), lambda true, self, waiting, made: true(self, waiting[::-1], made), WAITING),
)  # fmt: skip


@bug("5", (Acknowledger, "finish"), 1003)
async def the_poll_does_not_wait_for_its_acknowledgements(_: Any, self: Acknowledger, answer: Any) -> None:
    self.release(answer, set(answer.held))


bugs(
    "6",
    a_list_with_a_document_without_key_is_whole=(
        deliveries.is_whole,
        lambda true, documents, **how: true([one for one in documents if one.payment_key is not None], **how), KEYLESS),
    a_list_of_one_status_is_whole=(
        deliveries.is_whole, lambda true, documents, **how: true(documents, **how | {"asked": None}), PARTS),
    a_cut_list_is_whole=(deliveries.is_cut, always(result=False), "a_list_is_cut_before_an_order_in_doubt"),
    a_row_is_sent_again_while_a_list_is_on_its_way=(
        (Outbox, "_may_leave"), lambda _, outbox, entry: outbox._lanes.take(entry.lane), ON_ITS_WAY),
    a_cancelled_order_is_not_seen_by_a_row_in_doubt=(
        retry.after_poll,
        lambda true, action, history, order, seen, **how: true(
            action, history, order, 99 if seen == 6 and action != Action.CANCEL else seen, **how),
        "a_customer_cancels_while_a_complete_is_in_doubt"),
)  # fmt: skip
bugs(
    "6",
    a_look_resolves_nothing=((Reconciler, "resolve"), idle, CRASH),
    doubt_lasts_one_attempt=(retry.is_uncertain, lambda true, history: true(list(history)[-1:]), REFUSED),
    a_sent_row_can_be_taken_back=(
        (outbox_rows, "ENDS"),
        outbox_rows.ENDS
        | {(Standing.UNRESOLVED, Cause.WITHDRAWN): outbox_rows.ENDS[Standing.WAITING, Cause.WITHDRAWN]},
        1005),
    a_poll_that_ends_forgets_what_was_on_the_wire_in_another=(
        (Lanes, "end_poll"), lambda true, self, began: (true(self, began), self._used.clear())[0], LIST_BEFORE),
    an_end_of_another_order_counts=(
        actions.ends, lambda true, tx, keys: {(key, action) for key in keys for _, action in true(tx, keys)},
        "two_orders_end_and_both_answers_are_lost"),
    a_fifth_request=(retry.counted, made_otherwise(lambda made: made - 1), CRASH),
    a_cancel_is_proved_by_absence_beside_our_own_complete=(actions.ends, always(set()), REFUSED),
    a_toggle_replaces_those_of_another_menu=(
        outbox_rows.lane_of,
        lambda true, row, account: ("food", str(row.food_id)) if row.food_id else true(row, account), HANGS),
    absence_proves_no_acknowledged_status=(
        retry.proof, lambda true, action, history, order, *of, **how: true(
            action, history, replace(order, acknowledged_status_id=None), *of, **how),
        "nothing_shows_what_became_of_some_requests"),
    absence_alone_proves_a_complete=(
        retry.proof, lambda true, action, history, order, seen, **how: retry.Proof.DONE
        if (action, seen) == (Action.COMPLETE, None) else true(action, history, order, seen, **how), LOST),
    everything_is_sent=(lifecycle.may_send, always(None)),
    every_order_is_cancelled_for_reason_1=(
        (Client, "act"),
        lambda true, self, action, key, reason=None: true(self, action, key, 1 if action == Action.CANCEL else reason),
        WAITING),
    a_cancel_replaces_nothing=(
        *unsent(lambda true, row, later, view: true(row, [n for n in later if n.action != Action.CANCEL], view)),
        WAITING),
    nothing_can_be_asked_back=(
        *unsent(lambda true, row, later, view: true(replace(row, withdraw=False), later, view)), ASKED_BACK),
)  # fmt: skip


def soon(made: Any, action: Action, _: Attempt, now: datetime) -> Any:
    repeats = action == Action.ACCEPT and isinstance(made, retry.RetryAt)
    return retry.RetryAt(now + timedelta(seconds=5), made.code) if repeats else made


def done(_: Any, action: Action, __: Attempt, ___: datetime) -> Verdict:
    return Verdict(ActionState.DONE, None, KnownBy.ANSWER, ACTIONS[action].target)


bugs("6", an_accept_is_sent_again_without_a_look=(*decided(Outcome.UNKNOWN, soon), LONG_LIST))
bugs("1, 2 and 6", silence_counts_as_done=(*decided(Outcome.UNKNOWN, done), LOST))


async def free_at_the_ok(true: Any, self: Acknowledger, answer: Any, key: str, *rest: Any) -> None:
    try:
        await true(self, answer, key, *rest)
    finally:
        self.release(answer, {key})


bugs(
    "7",
    a_stop_waits_for_nothing=((Outbox, "is_busy"), always(result=True), FULL),
    an_error_of_the_database_ends_the_daemon=((Outbox, "safe_cycle"), lambda _, self: self.cycle(), 1021),
    a_document_is_counted_twice=(quarantine.keep, lambda true, *of: (true(*of), true(*of))[0], 1003),
    an_order_behind_a_full_list_is_not_asked_for=(
        (poll_ends.ListRequest, "full"), lambda _, self, __: poll_ends.ListRequest(), FULL),
)  # fmt: skip
bugs(
    "8",
    a_dead_line_is_not_told=muted("poll.failed"),
    an_account_without_a_good_poll_is_fine=(
        health._polling, lambda true, account, *of: true(account, *of) if account.last_poll_ok_utc else None, NO_LIST),
    an_accept_that_failed_is_no_problem=(
        health._unanswered, lambda true, *of: [one for one in true(*of) if one.code != Code.ACCEPT_FAILED], FAILURES),
    an_unanswered_accept_is_no_alarm=(outcome_writer.is_alarm, always(result=False), EXPIRY),
    orders_that_are_not_acknowledged_are_no_problem=(
        problem_queries.rows, lambda true, tx, kind, *of: [] if kind == "not_acknowledged" else true(tx, kind, *of),
        "acknowledgements_fail_for_minutes"),
    a_till_still_reads_a_problem_that_is_over=(
        problem_rows.rewrite,
        lambda true, *of: true(*of[:-1], {key: row for key, row in of[-1].items() if row is not None}), FAILURES),
    the_mildest_problem_lights_the_lamp=(
        problems.account_statuses, lambda true, names, found: true(names, list(found)[-1:]), FULL),
)  # fmt: skip


@bug("7", unfinished._timed, 1004)
def a_bad_row_stops_the_outbox(true: Any, *of: Any) -> Any:
    found = true(*of)
    assert not found.unreadable
    return found


@bug("9", (Vault, "save"), REFUSED, (hiding.hide, nothing))
def the_token_is_logged(true: Any, self: Vault, tx: Any, token: Any) -> None:
    structlog.get_logger().info("login.kept", grant=token.access_token)
    true(self, tx, token)


@bug("9", (Vault, "save"), ASKED_BACK)
def the_token_is_kept_readable(true: Any, self: Vault, tx: Any, token: Any) -> None:
    true(self, tx, token)
    tx.execute(update(tables.tokens).values(ciphertext=token.access_token))


@bug("9", (Wire, "_exchange"), 1004)
async def redirects_are_followed(_: Any, self: Wire, request: httpx.Request, *__: Any) -> Answer:
    client = httpx.AsyncClient(transport=self._transport, follow_redirects=True)
    response = await client.send(request)
    return Answer(response.status_code, response.headers.get("content-type", ""), response.content)


bugs(
    "login",
    a_token_is_renewed_at_its_end=(tokens.renew_at, lambda _, __, expiry: expiry, TOKEN_ENDS),
    a_time_zone_is_believed=(
        tokens.expires, lambda true, said, received, zone: true(said, received - timedelta(3), zone), HANGS),
    a_refused_login_is_tried_again_at_once=(tokens.refusal_wait, always(0.1), 1009),
    a_login_answered_5xx_is_tried_again_at_once=(tokens.login_wait, always(0.0), MUCH_FAILS),
)  # fmt: skip
bugs(
    "contract",
    a_verdict_does_not_write_the_status=(orders.set_status, nothing, LOST),
    a_verdict_does_not_write_a_foods_status=(foods.set_status, nothing, 6200001),
    the_lines_stay_as_they_were=(
        lifecycle.merge, made_otherwise(lambda made: replace(made, differs=Differs.NOTHING)), 1006),
    prepaid_orders_are_collected_again=(documents.amount_due, lambda _, total, code: total if code else None, CLOCK),
    a_doubt_never_goes=(lifecycle.without_doubt, lambda _, problem: problem, 1007),
    an_outage_counts_as_listening=(
        poll_ends.listened, lambda _, until, answered, __: (answered, 0 if until is None else int(answered - until)),
        "no_list_comes_for_minutes_while_an_order_is_open"),
    a_menu_lacks_the_foods_of_others=(
        foods.mark_gone, lambda true, tx, account, **how: (true(tx, account, **how), tx.execute(update(
            tables.foods).where(tables.foods.c.account != account).values(gone_utc=how["began"])))[0], HANGS),
    silence_ends_nothing=(order_times.silent, always([]), SHOWN_AGAIN),
    an_order_shown_after_its_silence_stays_ended=(
        lifecycle.is_unchanged, lambda true, stored, *of: true(replace(stored, ended_by=None), *of), SHOWN_AGAIN),
    of_kept_documents_the_time_alone_decides=(
        reimport.in_order, lambda _, kept: kept, "refused_orders_change_and_are_stored_by_hand"),
    the_lane_is_free_before_its_ok_is_noted=((Acknowledger, "acknowledge"), free_at_the_ok, OK_LATE),
    an_ok_is_not_noted=(orders.mark_acknowledged, nothing, SHOWN_AGAIN),
    an_ok_that_could_not_be_noted_is_forgotten=((Acknowledger, "mark_late"), idle, MUCH_FAILS),
    an_accept_does_not_move_the_start=(
        order_times.start_of, lambda true, wanted, zone, _: true(wanted, zone, 30), MUCH_FAILS),
    an_order_starts_twice=(
        order_times.note, lambda true, tx, now, found, **how: true(tx, now, [*found, *found], **how), 170100163),
    a_start_is_not_noticed=(order_times.due, always([]), 170100163),
    an_old_order_is_not_late=((deliveries.Lateness, "marked"), lambda _, __, order, ___: order, FULL),
    a_scheduled_order_is_accepted=(
        deliveries.accepts_itself, lambda true, order, **_: true(order, scheduled_too=True), 1003),
    the_status_of_a_restaurant_is_not_written=(reference.set_restaurant_status, nothing, 1019),
    retention_deletes_documents_that_wait=(
        retention.delete_documents, lambda _, tx, before: tx.execute(delete(tables.quarantine)).rowcount, 1003),
)  # fmt: skip


@bug("login", (Session, "replace"), 1004)
async def a_refused_token_is_used_again(_: Any, __: Session, refused: Any, *___: Any) -> Any:
    return refused


@bug("contract", retention.blank_old, "orders_come_faster_than_a_step_and_are_a_day_old")
def retention_keeps_the_notes_of_the_lines(true: Any, tx: Any, keys: Any, **how: Any) -> Any:
    blanked = true(tx, keys, **how)
    tx.execute(update(tables.items).where(tables.items.c.payment_key.in_(blanked)).values(note="kept"))
    return blanked


class _Forgetful:
    """`os`, but some of its calls do nothing."""

    def __init__(self, *left_out: str) -> None:
        self._left_out = left_out

    def __getattr__(self, name: str) -> Any:
        return nothing if name in self._left_out else getattr(os, name)


def _synchronous_normal(true: Any, timeout_s: float, connection: Any, record: Any) -> None:
    true(timeout_s, connection, record)
    connection.execute("PRAGMA synchronous = NORMAL")


# The program takes the setting for durable, and no judge checks it.
_FLUSHED_LATER = (
    (sqlite._prepare_connection, _synchronous_normal),
    ((sqlite, "SYNCHRONOUS_FULL"), 0),
    ((StoredBeforeAcknowledged, "connected"), nothing),
)


BUGS |= {
    name: Bug(promise, 2, plants, "power")
    for name, promise, plants in (
        ("a_commit_is_flushed_later", "1", _FLUSHED_LATER),
        ("a_line_of_the_journal_is_not_flushed", "journal", (((journal, "os"), _Forgetful("fdatasync")),)),
        ("the_name_of_the_journal_is_not_flushed", "journal", (((journal, "sync_folder"), nothing),)),
        ("the_mark_gets_its_name_before_it_is_flushed", "mark", (((high_water, "os"), _Forgetful("fsync")),)),
    )
}


@bug("1", (Intake, "_write"))
async def acknowledged_before_the_commit(true: Any, self: Intake, answer: Any, chunk: Any, *rest: Any) -> int:
    self.acknowledger.start(answer, chunk)
    return int(await true(self, answer, chunk, *rest))


bugs(
    "restore", "restore",
    what_an_older_copy_had_to_send_is_sent=(high_water._end_rows, always(0), 3),
    an_older_copy_is_not_noticed=(high_water.is_older, always(result=False), 1),
    a_revoked_tablet_comes_back=(high_water._revoke_others, always(0), 1),
    nobody_can_confirm_a_restore=(high_water.settle, always(result=False), 1),
    a_copy_takes_the_wal_of_a_newer_file=(sqlite_checks.refuse_foreign_wal, nothing, 23),
)  # fmt: skip
bugs("1", "restore", a_replay_stores_nothing=((Reimport, "store"), always(Decision.KNOWN), 10))

_taps = count()

bugs(
    "closures", "hands",
    a_closure_does_not_end=((Closures, "carry_out"), always([])),
    a_closure_ends_at_once=(closures.step, always(Step.END)),
    a_closure_ends_beside_something_newer=(closures.step, lambda true, plan, _, now: true(plan, (), now), 1003),
    a_closure_ends_beside_a_row_that_waits=(
        closures.step, lambda true, plan, newer, now: true(plan, {*newer} & {ActionState.DONE}, now), 170100263),
    the_end_of_a_closure_is_lost=(store_closures.end, nothing),
)  # fmt: skip
bugs("board", "hands", each_tap_is_a_row=(cards.request_id, lambda true, *of: f"{true(*of)}:{next(_taps)}"))
bugs("board", a_failed_accept_rings_no_more=((cards, "ANSWERED"), frozenset(ActionState), FAILURES))

# The unit test that finds a bug, too. `./run sim --bugs` plants it and runs the test.
FOUND_BY = tomllib.loads(Path(__file__).with_name("found_by.toml").read_text())
