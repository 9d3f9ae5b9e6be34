"""Promises 7 to 9: a fault harms only its own account or order, is reported, and reveals no secret."""

import math
from typing import TYPE_CHECKING, Any

from tests.sim.judge import IN_TIME_S, UNDISTURBED_S, Judge, changed_at
from tests.sim.line import Call
from tests.sim.reading import status_in

from orderbridge_sandbox.scenery import APP_SECRET
from orderbridge_sandbox.state import Order

if TYPE_CHECKING:
    from tests.sim.life import Life

TOLD_S = 5.0 + 25.0  # "within seconds", which a slow disk and a till that locks the file delay


class FaultsStayApart(Judge):
    """A fault of one order or account does not stop the others' orders, and is no bug of ours."""

    promise = "7"
    never = ("job.crashed", "outbox.crashed", "action.crashed")

    def logged(self, level: str, event: str, facts: dict[str, Any], _: str) -> None:
        if event in self.never or event.startswith(("Task exception", "Exception in callback")):
            self.broken(f"the log has {event} {facts.get('error', '')}")

    def tick(self) -> None:
        now = self.sim.now()
        well = [
            name
            for name in self.sim.plan.accounts
            if name not in self.sim.refused and now - self.sim.disturbed.get(name, 0.0) > UNDISTURBED_S
        ]
        if well:
            self._orders_come_in(well, now)

    def _orders_come_in(self, well: list[str], now: float) -> None:
        world = self.sim.world
        in_time = IN_TIME_S * (2 * self.sim.plan.in_turn - 1)
        for account in well:
            mine = {r for a in world.scenery.accounts if a.name == account for r in a.restaurant_ids}
            for key, at in self.sim.orders_at.items():
                order = world.orders[key]
                late = not order.acknowledged and order.status_id != 5 and order.restaurant_id in mine
                late = late and not (self.sim.plan.slow_disk and self._is_stored(order))
                if not late or now - at < in_time or now - changed_at(self.sim, order) < in_time:
                    continue
                if not isinstance(order.placed.get("payment_key"), str) or len(order.key) != 36:
                    continue
                if not self.is_unresolved(key):
                    self.broken(f"order {key} of {account}, placed at {at:.0f}, is not acknowledged")

    def _is_stored(self, order: Order) -> bool:
        """Whether its newest status is stored: a slow disk may leave no time for its acknowledgement."""
        status = order.status_id if len(order.history) > 1 else status_in(order.document)
        stored = "SELECT 1 FROM delivery_orders WHERE payment_key = ? AND status_id IS ?"
        return bool(self.rows(stored, order.key, status))


class FailuresAreLogged(Judge):
    """A failed poll, a refused login and a failed accept are logged within seconds."""

    promise = "8"

    def __init__(self) -> None:
        self._failing: dict[str, tuple[float, int]] = {}  # by account: since when and in which life; not logged yet
        self._told: dict[str, tuple[int, str]] = {}
        self._to_recover: dict[str, tuple[float, int]] = {}

    def ended(self, call: Call) -> None:
        if call.operation == "get_current" and call.ended != "crashed":
            good = call.status == 200 and call.whole and call.ended == "answered"
            told = self._told.get(call.account, (0, ""))[0] == call.life
            if good and told:
                self._to_recover.setdefault(call.account, (math.inf, call.life))  # until its orders are stored
            elif not good and not told:
                self._failing.setdefault(call.account, (self.sim.now(), call.life))
        if call.operation == "login" and call.status == 401 and call.whole and call.ended == "answered":
            self._failing.setdefault(f"login {call.account}", (self.sim.now(), call.life))

    def logged(self, level: str, event: str, facts: dict[str, Any], _: str) -> None:
        account = str(facts.get("account", ""))
        life = self.sim.life.number if self.sim.life else 0
        if event == "poll.failed":
            self._failing.pop(account, None)
            self._told[account] = (life, str(facts["state"]))
        elif event == "poll.recovered":
            self._to_recover.pop(account, None)
            self._told.pop(account, None)
        elif event == "orders.polled" and account in self._to_recover:
            self._to_recover[account] = (self.sim.now(), life)
        elif event == "job.database_failed":  # a list that could not be stored is no good poll
            self._to_recover.pop(str(facts["job"]).removeprefix("poll "), None)
        elif event == "login.refused" and level == "error":
            self._failing.pop(f"login {account}", None)
        elif event in {"action.expired", "action.failed"}:
            self._heard_end(level, event, facts)

    def _heard_end(self, level: str, event: str, facts: dict[str, Any]) -> None:
        """An unanswered customer or an unknown courier is an error in the log."""
        alarm = facts.get("action") == "accept"
        alarm = alarm or (facts.get("action") == "on_the_way" and facts.get("code") == "outcome_unknown")
        if alarm and level != "error":
            self.broken(f"{event} of {facts['action']} {facts['id']} is logged with the level {level}")

    def crashed(self, _: "Life") -> None:
        self._failing.clear()
        self._to_recover.clear()
        self._told.clear()

    def restarted(self, life: "Life") -> None:
        self.crashed(life)

    def tick(self) -> None:
        for what, waiting in (("failure", self._failing), ("recovery", self._to_recover)):
            for account, (since, life) in waiting.items():
                if self.sim.now() - since > TOLD_S and self.sim.life and self.sim.life.number == life:
                    self.broken(f"the {what} of {account} at {since:.0f} is not logged")


class NothingLeaks(Judge):
    """No secret and no customer's data in a log line, no secret in a file. The line checks the host."""

    promise = "9"

    def __init__(self) -> None:
        self._customers: set[str] = set()
        self._seen = 0

    def logged(self, level: str, event: str, facts: dict[str, Any], line: str) -> None:
        secrets = [APP_SECRET, *(f"sandbox-{name}-secret" for name in self.sim.plan.accounts), *self.sim.tokens]
        orders = list(self.sim.world.orders.values())
        for order in orders[self._seen :]:
            customer = order.placed.get("customer")
            if isinstance(customer, dict):
                self._customers |= {str(customer.get("phone")), str(customer.get("name"))}
        self._seen = len(orders)
        for private in [*secrets, *self._customers]:
            if private in line:
                self.broken(f"the log line {event} contains {private!r}")

    def finish(self) -> None:
        files = [path for path in sorted(self.sim.path.parent.rglob("*")) if path.is_file()]
        content = b"".join(file.read_bytes() for file in files)
        for secret in [APP_SECRET, *(f"sandbox-{name}-secret" for name in self.sim.plan.accounts), *self.sim.tokens]:
            if secret.encode() in content:
                self.broken("a file beside the database contains a secret or a token")
