"""Judges the replicas: one acts for each account, and another one takes over in time."""

from tests.jobs.shop import COOLDOWN_S
from tests.sim.judge import Judge
from tests.sim.life import LIFE, Life
from tests.sim.line import Call

from orderbridge.jobs.accounts_at_work import LEAVE_S
from orderbridge.store.own_tables import BUCKETS
from orderbridge_fleet.advisory_locks import BUCKETS as LOCKS
from orderbridge_fleet.advisory_locks import CALL_S, SILENT_S
from orderbridge_fleet.buckets import GRACE_S, bucket_of
from orderbridge_fleet.replica import BEAT_S, READ_S

# The server ends a silent session, another replica waits for that, and its own call takes time.
TAKEN_OVER_S = SILENT_S + GRACE_S + 2 * BEAT_S + READ_S + CALL_S
POLLED_S = 3.0  # for a login
FLYING = 50  # requests, among which are those on the wire
IN_FLIGHT = "SELECT 1 FROM delivery_action_attempts WHERE action_id = ? AND finished_utc IS NULL"


def name_of(life: Life | None) -> str | None:
    membership = life and life.daemon and life.daemon.roster.membership
    return membership.name if membership else None


class OneActs(Judge):
    """A request leaves only from the replica that the table has for its account's bucket.

    A replica's lease begins before the server hears its beat, since the server counts the silence from then.
    """

    promise = "fleet"

    def looked(self) -> None:
        fleet = self.sim.fleet
        for life in fleet.at_work() if fleet is not None else ():
            heard = life.daemon.roster.heard
            if heard > fleet.server.heard.get(life.process, heard):
                self.broken(f"{name_of(life)} counts its lease from the server's answer")

    def leaving(self, call: Call) -> None:
        replica, holder = self._replica(call), self._holder(call)
        if call.account and replica is not None and holder != replica:
            self.broken(f"#{call.number} of {call.account} leaves {replica}, and {holder} holds its bucket")

    def _replica(self, call: Call) -> str | None:
        return next((name_of(life) for life in self.sim.processes if life.process == call.process), None)

    def _holder(self, call: Call) -> str | None:
        (row,) = self.rows("SELECT replica FROM delivery_buckets WHERE bucket = ?", bucket_of(call.account, BUCKETS))
        return str(row["replica"]) if row["replica"] is not None else None

    def committed(self, name: str) -> None:
        """A request on the wire is recovered by nobody while its replica holds the bucket."""
        if not self.wrote("delivery_action_attempts"):
            return
        for call in self.sim.calls[-FLYING:]:
            if call.row is None or call.ended or self.rows(IN_FLIGHT, call.row):
                continue
            replica = self._replica(call)
            if replica is not None and replica == self._holder(call) and replica != name_of(LIFE.get()):
                self.broken(f"{name} ends #{call.number} of row {call.row}, which {replica} has on the wire")


class ReplacedCommitsNothing(Judge):
    """A replica commits nothing after another one has taken a bucket that it had not released."""

    promise = "fleet"

    def __init__(self) -> None:
        self._noted: dict[int, str | None] = {}
        self._replaced: set[str] = set()

    def moved(self) -> None:
        now = {row["bucket"]: row["replica"] for row in self.rows("SELECT bucket, replica FROM delivery_buckets")}
        for bucket, before in self._noted.items():
            if before is None or now[bucket] in {None, before}:
                continue
            self._replaced.add(before)
            after = self.sim.now() - self.sim.fleet.server.lost_at[LOCKS, bucket]
            if after < GRACE_S:
                self.broken(f"bucket {bucket} was taken from {before} {after:.1f} s after its lock was free")
        self._noted = now

    def committed(self, name: str) -> None:
        if (replica := name_of(LIFE.get())) in self._replaced:
            self.broken(f"{name} commits for {replica}, which was replaced")


class EqualShares(Judge):
    """Healthy replicas hold equal numbers of buckets."""

    promise = "fleet"

    def looked(self) -> None:
        fleet = self.sim.fleet
        if fleet is None:
            return
        if self.sim.now() < max([fleet.changed_at, *self.sim.disturbed.values()]) + TAKEN_OVER_S + LEAVE_S:
            return
        query = "SELECT replica, count(*) AS held FROM delivery_buckets GROUP BY replica"
        held = {row["replica"]: row["held"] for row in self.rows(query)}
        shares = [held.get(name_of(life), 0) for life in fleet.at_work()]
        if shares and (sum(shares) != BUCKETS or max(shares) - min(shares) > 1):
            self.broken(f"the replicas have {shares} buckets, not equal shares")


class TakenOver(Judge):
    """While one replica is healthy, each account is polled, including those of an unhealthy replica.

    The first polls of accounts that no replica polled for a cooldown are spread over one (rules/cooldown.py).
    """

    promise = "fleet"

    def looked(self) -> None:
        sim = self.sim
        if sim.fleet is None or not sim.fleet.at_work() or sim.fleet.server.is_down or sim.plan.fault_rate:
            return
        for row in self.rows("SELECT name, next_poll_utc FROM delivery_accounts WHERE next_poll_utc IS NOT NULL"):
            could = max(sim.disturbed.get(row["name"], 0.0), sim.fleet.changed_at) + TAKEN_OVER_S
            due, could_for = self.seconds_since(row["next_poll_utc"]), sim.now() - could
            late = min(due, could_for)
            if late > POLLED_S + (COOLDOWN_S if due - could_for > COOLDOWN_S else 0.0):
                self.broken(f"no replica polls {row['name']}, {late:.1f} s after one should")
