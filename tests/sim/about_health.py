"""Promise 8: what is wrong with an order is told by the log within the health look's time, and so is its end."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from tests.jobs.shop import text_of
from tests.sim.invariant import Invariant
from tests.sim.plan import LOUD_HEALTH_S, MINUTE, QUIET_HEALTH_S

if TYPE_CHECKING:
    from tests.sim.life import Life

# What the configuration says when it says nothing.
UNANSWERED = timedelta(seconds=30)
NOT_TAKEN_OVER = timedelta(minutes=3)
UNSEEN = timedelta(minutes=2)
A_DAY = timedelta(days=1)
LATE = timedelta(seconds=90)
LOOKS_S = MINUTE  # a slow disk, and the town's own look every half minute

OPEN = "SELECT * FROM delivery_orders WHERE ended_utc IS NULL AND status_id = 1 AND changed_utc > ?"
ACCEPTS = "SELECT payment_key, state FROM delivery_actions WHERE action = 'accept' ORDER BY id"
NOT_TAKEN = (
    "SELECT DISTINCT account FROM delivery_orders WHERE ended_utc IS NULL AND pos_revision = 0 AND received_utc < ?"
)
CANCELLED = (
    "SELECT payment_key FROM delivery_orders WHERE ended_by = 'cancelled' AND 0 < pos_revision"
    " AND pos_revision < revision AND changed_utc < ? AND payment_key NOT IN"
    " (SELECT payment_key FROM delivery_actions WHERE action = 'cancel' AND state = 'done')"
)
CUT_OFF = "SELECT name FROM delivery_accounts WHERE state IN ('login_refused', 'unreachable') OR last_poll_utc < ?"
KEPT = "SELECT 1 FROM delivery_quarantine WHERE resolved_utc IS NULL"
CODES = {"not_taken_over", "unanswered", "accept_failed", "cancellation_unseen", "quarantined"}

Key = tuple[str, str]  # code, subject


class HealthSaysWhatIsSo(Invariant):
    """The problems that the log has begun and not ended are those that the tables show."""

    promise = "8"

    def __init__(self) -> None:
        self._open: set[Key] = set()
        self._so: dict[Key, float] = {}  # since when it has been so at each look
        self._not_so: dict[Key, float] = {}
        self._born = 0.0
        self._process = 1

    def logged(self, _: str, event: str, facts: dict[str, Any], __: str) -> None:
        key = (str(facts.get("code")), str(facts.get("subject")))
        if event == "daemon.hung":
            self.broken(f"the watchdog ends one that works: {facts}")
        if event == "problem.began":
            self._open.add(key)
        elif event == "problem.ended":
            if key not in self._open:
                self.broken(f"{key} ends and never began")
            self._open.discard(key)

    def crashed(self, _: "Life") -> None:
        self._open.clear()

    def restarted(self, life: "Life") -> None:
        if life.process != self._process:  # over a reload the log goes on
            self._open.clear()
        self._process, self._born = life.process, self.sim.now()

    def tick(self) -> None:
        if self.sim.plan.jumps:
            return
        now, truth = self.sim.now(), self._truth()
        self._so = {key: self._so.get(key, now) for key in truth}
        self._not_so = {key: self._not_so.get(key, now) for key in self._open - truth if key[0] in CODES}
        looked = QUIET_HEALTH_S if self.sim.plan.kind == "day" else LOUD_HEALTH_S
        border = now - looked - LOOKS_S
        if max(self._born, *self.sim.disturbed.values()) > border:
            return
        for key, since in self._so.items():
            if since < border and key not in self._open:
                self.broken(f"{key} is so since {since:.0f}, and the log does not say it")
        for key, since in self._not_so.items():
            if since < border:
                self.broken(f"{key} is no longer so since {since:.0f}, and the log has not ended it")

    def _truth(self) -> set[Key]:
        now = self.sim.clock.now()
        accepts = {row["payment_key"]: row["state"] for row in self.rows(ACCEPTS)}
        found: set[Key] = {
            ("cancellation_unseen", row["payment_key"]) for row in self.rows(CANCELLED, text_of(now - UNSEEN))
        }
        late = text_of(now - NOT_TAKEN_OVER)
        found |= {("not_taken_over", row["account"]) for row in self.rows(NOT_TAKEN, late)}
        if self.rows(KEPT):
            found.add(("quarantined", ""))
        local = f"{now.astimezone(ZoneInfo('Europe/Istanbul')):%Y-%m-%d %H:%M:%S}"
        cut_off = {row["name"] for row in self.rows(CUT_OFF, text_of(now - LATE))}
        for row in self.rows(OPEN, text_of(now - A_DAY)):
            if row["account"] in cut_off:  # neither begun nor ended meanwhile
                continue
            accept = accepts.get(row["payment_key"])
            overdue = row["received_utc"] < text_of(now - UNANSWERED) and (row["scheduled_for"] or "") <= local
            if accept in {"expired", "failed"}:
                found.add(("accept_failed", row["payment_key"]))
            elif accept not in {"pending", "sending"} and row["pos_revision"] > 0 and overdue:
                found.add(("unanswered", row["payment_key"]))
        return found
