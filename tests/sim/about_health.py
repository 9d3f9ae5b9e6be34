"""Promise 8: the log says within the health check's interval when a problem of an order begins and ends."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.jobs.shop import text_of
from tests.sim.bounds import CANCEL_ANSWERS_S, LATE_S, NOT_TAKEN_OVER_S, SCHEDULED_S, UNANSWERED_S, UNSEEN_S
from tests.sim.judge import Judge
from tests.sim.plan import LOUD_HEALTH_S, MINUTE, QUIET_HEALTH_S

from orderbridge.rules.problems import Cause, Code
from orderbridge.store.problem_queries import REMEMBERED

if TYPE_CHECKING:
    from tests.sim.life import Life

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
KEPT = "SELECT 1 FROM delivery_quarantine WHERE resolved_utc IS NULL"
OF_POLLS = {code.value for code in Code if code.kind.cause in {Cause.CUT_OFF, Cause.NO_LIST}}
CODES = {"not_taken_over", "unanswered", "accept_failed", "cancellation_unseen", "quarantined"}

Key = tuple[str, str]  # code, subject


class ProblemsAreLogged(Judge):
    """The log's open problems are those that the tables show."""

    promise = "8"

    def __init__(self) -> None:
        self._open: set[Key] = set()
        self._so: dict[Key, float] = {}  # since when each check has shown it
        self._not_so: dict[Key, float] = {}
        self._born = 0.0
        self._process = 1

    def logged(self, _: str, event: str, facts: dict[str, Any], __: str) -> None:
        key = (str(facts.get("code")), str(facts.get("subject")))
        if event == "daemon.hung":
            self.broken(f"the watchdog ends a daemon that works: {facts}")
        if event == "problem.began":
            self._open.add(key)
        elif event == "problem.ended":
            if key not in self._open:
                self.broken(f"problem.ended is logged for {key}, and problem.began never was")
            self._open.discard(key)

    def crashed(self, _: "Life") -> None:
        self._open.clear()

    def restarted(self, life: "Life") -> None:
        if life.process != self._process:  # a reload continues the log
            self._open.clear()
        self._process, self._born = life.process, self.sim.now()

    def tick(self) -> None:
        if self.sim.plan.jumps:
            return
        self._check_polls()
        now, (truth, unknown) = self.sim.now(), self._truth()
        self._so = {key: self._so.get(key, now) for key in truth}
        over = self._open - truth - unknown
        self._not_so = {key: self._not_so.get(key, now) for key in over if key[0] in CODES}
        looked = QUIET_HEALTH_S if self.sim.plan.kind == "day" else LOUD_HEALTH_S
        border = now - looked - LOOKS_S
        if max(self._born, *self.sim.disturbed.values()) > border:
            return
        lately = self._answered_since(border)
        for key, since in self._so.items():
            if since < border and key not in self._open and key[1] not in lately:
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
            late = now - max(good, self._born) - LATE_S
            told = any(code in OF_POLLS and subject == row["name"] for code, subject in self._open)
            if late > LOUD_HEALTH_S + LOOKS_S and not told and row["name"] not in self.sim.taken_out:
                self.broken(f"{row['name']} has had no good poll since {good:.0f}, and no problem says so")

    def _answered_since(self, moment: float) -> set[str]:
        """Orders that were answered lately: the log may have changed between two ticks."""
        since = self._ago(self.sim.now() - moment)
        return {row["payment_key"] for row in self.rows(ANSWERED, since, since)}

    def _truth(self) -> tuple[set[Key], set[Key]]:
        """The problems; and those that neither begin nor end now, because their account has a problem."""
        unseen = {("cancellation_unseen", row["payment_key"]) for row in self.rows(CANCELLED, self._ago(UNSEEN_S))}
        not_taken = {("not_taken_over", row["account"]) for row in self.rows(NOT_TAKEN, self._ago(NOT_TAKEN_OVER_S))}
        found: set[Key] = unseen | not_taken
        if self.rows(KEPT):
            found.add(("quarantined", ""))
        unknown: set[Key] = set()
        accounts = {row["name"]: row for row in self.rows("SELECT * FROM delivery_accounts")}
        answers = self._answers()
        for row in self.rows(OPEN, self._ago(A_DAY_S)):
            key, account = row["payment_key"], accounts[row["account"]]
            answer = answers.get(key)
            if account["state"] in CUT_OFF or (account["last_poll_utc"] or "") < self._ago(LATE_S):
                unknown |= {("accept_failed", key), ("unanswered", key)}
            elif answer is not None and answer["state"] in {"expired", "failed"}:
                follows = answer["finished_utc"] > (account["last_poll_ok_utc"] or "") and account["state"] != "ok"
                (unknown if follows else found).add(("accept_failed", key))
            elif (answer is None or answer["state"] not in {"pending", "sending"}) and self._waits(row):
                found.add(("unanswered", key))
        return found, unknown

    def _answers(self) -> dict[str, Any]:
        """By order: its newest accept, or a newer cancel that is unfinished for a short time only."""
        since = self._ago(CANCEL_ANSWERS_S)
        return {
            row["payment_key"]: row
            for row in self.rows(ANSWERS)
            if row["action"] == "accept" or (row["state"] in {"pending", "sending"} and row["created_utc"] >= since)
        }

    def _waits(self, row: Any) -> bool:
        """Whether a customer waits for an answer that a till could give."""
        is_due = (row["start_utc"] or "") <= text_of(self.sim.clock.now())
        waits_s = UNANSWERED_S if is_due else SCHEDULED_S
        return row["pos_revision"] > 0 and row["received_utc"] < self._ago(waits_s)

    def _ago(self, seconds: float) -> str:
        return text_of(self.sim.clock.now() - timedelta(seconds=seconds))
