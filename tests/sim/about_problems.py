"""Promise 8 in the tables: a till reads the same problems there as a technician in the log."""

import sqlite3

from tests.sim.about_trouble import LOOKS_S, Key
from tests.sim.bounds import LATE_S, SEVERE_S
from tests.sim.judge import Judge
from tests.sim.plan import LOUD_HEALTH_S, QUIET_HEALTH_S

from orderbridge.jobs.problem_table import SIGN_S
from orderbridge.rules.problems import Code

# The log keeps the problems open that these suppress.
SUPPRESS = {code.value for code in Code if code.kind.cause is not None} | {"contents_outdated", "not_durable"}
SHARED = "restaurant_closed"  # one row, also if two accounts have the restaurant
SHOWN = "SELECT code, subject, account, severity FROM delivery_problems"


class ProblemsAreShown(Judge):
    """delivery_problems has what the log has begun and not ended, and each account the lamp of its worst problem."""

    promise = "8"

    def __init__(self) -> None:
        self._apart: dict[Key, float] = {}  # since when only the log or only the table has it

    def tick(self) -> None:
        looked = (QUIET_HEALTH_S if self.sim.plan.kind == "day" else LOUD_HEALTH_S) + LOOKS_S
        quiet, rows = self.sim.quiet_s() > LATE_S + looked, self.rows(SHOWN)
        self._check_lamps(rows, quiet=quiet)
        shown, now = {(row["code"], row["subject"]) for row in rows}, self.sim.now()
        hidden = set() if SUPPRESS.isdisjoint(code for code, _ in shown) else self.sim.problems
        self._apart = {key: self._apart.get(key, now) for key in (shown ^ self.sim.problems) - (hidden - shown)}
        for key, since in self._apart.items() if quiet else ():
            if since < now - looked:
                where = "delivery_problems" if key in shown else "the log"
                self.broken(f"only {where} has the problem {key}, since {since:.0f}")
        if quiet and not self.sim.plan.jumps:
            self._check_severity(rows, looked)
            late = SIGN_S + looked - (0.0 if self.sim.plan.slow_disk or self.sim.plan.locks else LOOKS_S / 2)
            if self.seconds_since(seen := self.rows("SELECT seen_utc FROM delivery_daemon")[0][0]) > late:
                self.broken(f"the daemon works, and its last sign of life is of {seen}")

    def _check_lamps(self, rows: list[sqlite3.Row], *, quiet: bool) -> None:
        lamps = {row["account"]: row for row in self.rows("SELECT account, lamp, code FROM delivery_lamps")}
        if quiet and (lacking := set(self.sim.plan.accounts) - self.sim.taken_out - lamps.keys()):
            self.broken(f"delivery_lamps lacks {lacking}")
        for name, lamp in lamps.items():
            ours = [one for one in rows if one["account"] in {name, None} or one["code"] == lamp["code"] == SHARED]
            severities = {row["severity"] for row in ours}
            wanted = "red" if "severe" in severities else "yellow" if severities else "green"
            starts = wanted == "green" and lamp["code"] is None and not quiet
            if lamp["lamp"] != wanted and not (starts and lamp["lamp"] == "yellow"):
                self.broken(f"the lamp of {name} is {lamp['lamp']} ({lamp['code']}), and should be {wanted}")

    def _check_severity(self, rows: list[sqlite3.Row], looked: float) -> None:
        """A customer who waits for an answer becomes severe."""
        for row in rows:
            order = self.order(row["subject"]) if row["code"] == "unanswered" else None
            if order is None or order["scheduled_for"]:
                continue
            over = self.seconds_since(order["received_utc"]) - SEVERE_S
            if over < 0 if row["severity"] == "severe" else over > looked:
                self.broken(f"order {row['subject']} is unanswered, {row['severity']}, {over:.0f} s after its time")
