"""Judges promises 7 to 9: a fault harms only its own account or order, is reported, and reveals no secret."""

import math
from datetime import timedelta
from typing import Any

from tests.jobs.shop import text_of
from tests.sim.bounds import LATE_S, NOT_TAKEN_OVER_S, SCHEDULED_S, SEVERE_S, UNANSWERED_S, UNSEEN_S
from tests.sim.judge import IN_TIME_S, UNDISTURBED_S, Judge, changed_at, status_shown
from tests.sim.line import Call
from tests.sim.plan import LOUD_HEALTH_S, MINUTE, QUIET_HEALTH_S
from tests.sim.simulation import secret_of

from orderbridge.rules.problems import Cause, Code
from orderbridge.store.problem_queries import REMEMBERED
from orderbridge_sandbox.scenery import APP_SECRET
from orderbridge_sandbox.state import Order

REPORTED_S = 5.0 + 25.0  # "within seconds", which a slow disk and a till that locks the file delay


class FaultsStayApart(Judge):
    """A fault of one order or account does not stop the others' orders, and is no bug of ours."""

    promise = "7"
    never = ("job.crashed", "outbox.crashed", "action.crashed")

    def logged(self, level: str, event: str, facts: dict[str, Any], _: str) -> None:
        if event in self.never or event.startswith(("Task exception", "Exception in callback")):
            self.broken(f"the log has {event} {facts.get('error', '')}")
        if event == "daemon.stopped_early" and self.sim.stopping_at:
            self.broken("nothing is in flight, and the daemon does not end in time")

    def tick(self) -> None:
        now, world = self.sim.now(), self.sim.world
        in_time = IN_TIME_S * (2 * self.sim.plan.in_turn - 1)
        for account in self.sim.plan.accounts:
            if account in self.sim.refused or now - self.sim.disturbed.get(account, 0.0) <= UNDISTURBED_S:
                continue
            mine = {r for a in world.scenery.accounts if a.name == account for r in a.restaurant_ids}
            for key, at in self.sim.orders_at.items():
                order = world.orders[key]
                if order.acknowledged or order.status_id == 5 or order.restaurant_id not in mine:
                    continue
                is_late = min(now - at, now - changed_at(self.sim, order)) >= in_time
                has_key = isinstance(order.placed.get("payment_key"), str) and len(order.key) == 36
                stored = self.sim.plan.slow_disk and self._is_stored(order)
                if is_late and has_key and not stored and not self.is_unresolved(key):
                    self.broken(f"order {key} of {account}, placed at {at:.0f}, is not acknowledged")

    def _is_stored(self, order: Order) -> bool:
        """Whether its newest status is stored: a slow disk may leave no time for its acknowledgement."""
        stored = "SELECT 1 FROM delivery_orders WHERE payment_key = ? AND status_id IS ?"
        return bool(self.rows(stored, order.key, status_shown(order)))


class FailuresAreLogged(Judge):
    """A failed poll, a refused login and a failed accept are logged within seconds."""

    promise = "8"

    def __init__(self) -> None:
        self._failing: dict[str, tuple[float, int]] = {}  # by account: since when and in which life; not logged yet
        self._logged_in: dict[str, int] = {}  # in which life it was logged
        self._to_recover: dict[str, tuple[float, int]] = {}

    def ended(self, call: Call) -> None:
        if call.operation == "get_current" and call.ended != "crashed":
            told = self._logged_in.get(call.account) == call.life
            if call.is_heard and told and not call.argument:  # a list of one status is no good poll
                self._to_recover.setdefault(call.account, (math.inf, call.life))  # until its orders are stored
            elif not call.is_heard and not told:
                self._failing.setdefault(call.account, (self.sim.now(), call.life))
        if call.operation == "login" and call.status == 401 and call.whole and call.ended == "answered":
            self._failing.setdefault(f"login {call.account}", (self.sim.now(), call.life))

    def logged(self, level: str, event: str, facts: dict[str, Any], _: str) -> None:
        account = str(facts.get("account", ""))
        life = self.sim.life.number if self.sim.life else 0
        if event == "poll.failed":
            self._failing.pop(account, None)
            self._logged_in[account] = life
        elif event == "poll.recovered":
            self._to_recover.pop(account, None)
            self._logged_in.pop(account, None)
        elif event == "orders.polled" and account in self._to_recover:
            self._to_recover[account] = (self.sim.now(), life)
        elif event == "job.database_failed":  # a list that could not be stored is no good poll
            self._to_recover.pop(str(facts["job"]).removeprefix("poll "), None)
        elif event == "login.refused" and level == "error":
            self._failing.pop(f"login {account}", None)
        elif event in {"action.expired", "action.failed"} and level != "error":
            # An unanswered customer or an unknown courier is an error.
            action, code = facts.get("action"), facts.get("code")
            if action == "accept" or (action, code) == ("on_the_way", "outcome_unknown"):
                self.broken(f"{event} of {action} {facts['id']} is logged with the level {level}")

    def crashed(self) -> None:
        self._failing.clear()
        self._to_recover.clear()
        self._logged_in.clear()

    restarted = crashed

    def tick(self) -> None:
        for what, waiting in (("failure", self._failing), ("recovery", self._to_recover)):
            for account, (since, life) in waiting.items():
                if self.sim.now() - since > REPORTED_S and self.sim.life and self.sim.life.number == life:
                    self.broken(f"the {what} of {account} at {since:.0f} is not logged")


class NothingLeaks(Judge):
    """No secret and no customer's data in a log line, no secret in a file. The line checks the host."""

    promise = "9"

    def __init__(self) -> None:
        self._customers: set[str] = set()
        self._seen = 0

    def logged(self, level: str, event: str, facts: dict[str, Any], line: str) -> None:
        orders = list(self.sim.world.orders.values())
        for order in orders[self._seen :]:
            customer = order.placed.get("customer")
            if isinstance(customer, dict):
                self._customers |= {str(customer.get("phone")), str(customer.get("name"))}
        self._seen = len(orders)
        for private in [*self._secrets(), *self._customers]:
            if private in line:
                self.broken(f"the log line {event} contains {private!r}")

    def _secrets(self) -> list[str]:
        return [APP_SECRET, *map(secret_of, self.sim.plan.accounts), *self.sim.tokens]

    def finish(self) -> None:
        files = [path for path in sorted(self.sim.path.parent.rglob("*")) if path.is_file()]
        content = b"".join(file.read_bytes() for file in files)
        for secret in self._secrets():
            if secret.encode() in content:
                self.broken("a file beside the database contains a secret or a token")


NOT_ACKNOWLEDGED_S = 5 * MINUTE
A_DAY_S = REMEMBERED.total_seconds()
LOOKS_S = MINUTE  # a slow disk, and the judge's own interval of half a minute

OPEN = "SELECT * FROM delivery_orders WHERE ended_utc IS NULL AND status_id = 1 AND changed_utc > ?"
ANSWERS = "SELECT * FROM delivery_actions WHERE action IN ('accept', 'cancel') ORDER BY id"
ANSWERED = (
    "SELECT payment_key FROM delivery_actions"
    " WHERE action IN ('accept', 'cancel') AND (created_utc > ? OR finished_utc > ?)"
)
NOT_TAKEN = (
    "SELECT DISTINCT account FROM delivery_orders WHERE ended_utc IS NULL AND pos_revision = 0 AND received_utc < ?"
)
CANCELLED = (
    "SELECT payment_key FROM delivery_orders WHERE ended_by = 'cancelled' AND 0 < pos_revision"
    " AND pos_revision < revision AND changed_utc < ? AND payment_key NOT IN"
    " (SELECT payment_key FROM delivery_actions WHERE action = 'cancel' AND state = 'done')"
)
CUT_OFF = {"login_refused", "unreachable"}
UNRESOLVED = "SELECT * FROM delivery_quarantine WHERE resolved_utc IS NULL"
OF_POLLS = {code.value for code in Code if code.kind.cause in {Cause.CUT_OFF, Cause.NO_LIST}}
OUTDATED = "SELECT payment_key FROM delivery_orders WHERE ended_utc IS NULL AND problem LIKE '%contents_outdated%'"
# Without those of accepts, which are accept_failed, and of what has changed since.
UNKNOWN = (
    "SELECT a.id, a.finished_utc, ifnull(o.account, a.account) AS owner"
    " FROM delivery_actions a LEFT JOIN delivery_orders o USING (payment_key)"
    " WHERE a.state = 'failed' AND a.error_code = 'outcome_unknown' AND a.action <> 'accept' AND a.finished_utc > ?"
    " AND (o.payment_key IS NULL OR (o.changed_utc <= a.finished_utc AND o.ended_utc IS NULL))"
    " AND NOT EXISTS (SELECT 1 FROM delivery_actions n WHERE n.id > a.id AND n.state IN ('pending', 'sending', 'done')"
    " AND n.payment_key IS a.payment_key AND n.restaurant_id IS a.restaurant_id AND n.food_id IS a.food_id)"
)
CODES = {"not_taken_over", "unanswered", "accept_failed", "cancellation_unseen", "quarantined"}
CODES |= {"contents_outdated", "outcome_unknown", "not_acknowledged"}
UNACKNOWLEDGED = (
    "SELECT DISTINCT account FROM delivery_orders WHERE ended_utc IS NULL AND acknowledged_utc IS NULL"
    " AND received_utc < ?"
    " AND payment_key NOT IN (SELECT payment_key FROM delivery_order_events WHERE event = 'replayed')"
)

Key = tuple[str, str]  # code, subject


class ProblemsAreLogged(Judge):
    """The log's open problems are those that the tables show."""

    promise = "8"

    def __init__(self) -> None:
        self._so: dict[Key, float] = {}  # since when each check has shown it
        self._not_so: dict[Key, float] = {}

    def logged(self, _: str, event: str, facts: dict[str, Any], __: str) -> None:
        key = (str(facts.get("code")), str(facts.get("subject")))
        if event == "daemon.hung":
            self.broken(f"the watchdog ends a daemon that works: {facts}")
        if event == "problem.ended" and key not in self.sim.problems:
            self.broken(f"problem.ended is logged for {key}, and problem.began never was")

    def tick(self) -> None:
        if self.sim.plan.jumps:
            return
        self._check_polls()
        now, (truth, unknown) = self.sim.now(), self._truth()
        self._so = {key: self._so.get(key, now) for key in truth}
        over = self.sim.problems - truth - unknown
        self._not_so = {key: self._not_so.get(key, now) for key in over if key[0] in CODES}
        looked = QUIET_HEALTH_S if self.sim.plan.kind == "day" else LOUD_HEALTH_S
        border = now - looked - LOOKS_S
        if self.sim.quiet_s() < looked + LOOKS_S:
            return
        answered = self._ago(looked + LOOKS_S)  # since then: the log may have changed between two ticks
        lately = {row["payment_key"] for row in self.rows(ANSWERED, answered, answered)}
        for key, since in self._so.items():
            if since < border and key not in self.sim.problems and key[1] not in lately:
                self.broken(f"the problem {key} exists since {since:.0f}, and problem.began is not logged")
        for key, since in self._not_so.items():
            if since < border and key[1] not in lately:
                self.broken(f"the problem {key} is over since {since:.0f}, and problem.ended is not logged")

    def _check_polls(self) -> None:
        """An account without a good poll has a problem that says so."""
        plan, now = self.sim.plan, self.sim.now()
        shaky = plan.slow_disk or plan.broken_disk or plan.locks or self.sim.technician.is_refusing
        if shaky or plan.in_turn > 1:
            return
        for row in self.rows("SELECT name, last_poll_ok_utc FROM delivery_accounts"):
            good = now - self.seconds_since(row["last_poll_ok_utc"]) if row["last_poll_ok_utc"] else 0.0
            late = now - max(good, self.sim.born) - LATE_S
            told = any(code in OF_POLLS and subject == row["name"] for code, subject in self.sim.problems)
            if late > LOUD_HEALTH_S + LOOKS_S and not told and row["name"] not in self.sim.taken_out:
                self.broken(f"{row['name']} has had no good poll since {good:.0f}, and no problem says so")
        if now - self.sim.born < LOUD_HEALTH_S + LOOKS_S:
            return
        for row in self.rows(UNACKNOWLEDGED, self._ago(NOT_ACKNOWLEDGED_S + LOUD_HEALTH_S + LOOKS_S)):
            telling = {*OF_POLLS, "not_acknowledged"}
            if not any(code in telling and subject == row["account"] for code, subject in self.sim.problems):
                self.broken(f"orders of {row['account']} are not acknowledged for minutes, and no problem says so")

    def _truth(self) -> tuple[set[Key], set[Key]]:
        """The open problems; and those that are suppressed, because their account or order has a problem."""
        unseen = {("cancellation_unseen", row["payment_key"]) for row in self.rows(CANCELLED, self._ago(UNSEEN_S))}
        not_taken = {("not_taken_over", row["account"]) for row in self.rows(NOT_TAKEN, self._ago(NOT_TAKEN_OVER_S))}
        found: set[Key] = unseen | not_taken
        kept = self.rows(UNRESOLVED)
        refused = {row["payment_key"] for row in kept if row["reason"] == "database_refused"}
        outdated = {key for key in refused if self.order(key)}  # which suppresses the order's other problems
        found |= {("contents_outdated", key) for key in outdated}
        if any(row["payment_key"] not in outdated for row in kept):
            found.add(("quarantined", ""))
        unknown: set[Key] = set()
        accounts = {row["name"]: row for row in self.rows("SELECT * FROM delivery_accounts")}
        # By order: its newest accept, or a newer cancel that is unfinished for a short time only.
        since = self._ago(SEVERE_S)
        answers = {
            row["payment_key"]: row
            for row in self.rows(ANSWERS)
            if row["action"] == "accept" or (row["state"] in {"pending", "sending"} and row["created_utc"] >= since)
        }
        unknown |= {("not_acknowledged", row["account"]) for row in self.rows(UNACKNOWLEDGED, self._ago(0.0))}
        found |= {("contents_outdated", row["payment_key"]) for row in self.rows(OUTDATED)}
        for row in self.rows(UNKNOWN, self._ago(A_DAY_S)):
            account = accounts.get(row["owner"])
            is_well = account is None or (account["state"] == "ok" and account["last_poll_utc"] > self._ago(LATE_S))
            (found if is_well else unknown).add(("outcome_unknown", str(row["id"])))
        for row in self.rows(OPEN, self._ago(A_DAY_S)):
            key, account = row["payment_key"], accounts[row["account"]]
            answer = answers.get(key)
            is_cut_off = account["state"] in CUT_OFF or (account["last_poll_utc"] or "") < self._ago(LATE_S)
            if is_cut_off or key in outdated:
                unknown |= {("accept_failed", key), ("unanswered", key)}
            elif answer is not None and answer["state"] in {"expired", "failed"}:
                follows = answer["finished_utc"] > (account["last_poll_ok_utc"] or "") and account["state"] != "ok"
                (unknown if follows else found).add(("accept_failed", key))
            elif (answer is None or answer["state"] not in {"pending", "sending"}) and self._waits(row):
                found.add(("unanswered", key))
        return found, unknown

    def _waits(self, row: Any) -> bool:
        """Whether a customer waits for an answer that a till could give."""
        is_due = (row["start_utc"] or "") <= text_of(self.sim.clock.now())
        waits_s = UNANSWERED_S if is_due else SCHEDULED_S
        return row["pos_revision"] > 0 and row["received_utc"] < self._ago(waits_s)

    def _ago(self, seconds: float) -> str:
        return text_of(self.sim.clock.now() - timedelta(seconds=seconds))
