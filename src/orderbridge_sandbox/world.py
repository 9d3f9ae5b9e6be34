"""The state of the simulated marketplace, and its changes that are not caused by calls of the POS.

Every public method takes the lock, so that any thread may use a World. `wait_for` waits for a condition without
sleeping. service.py carries out the POS's calls.
"""

import logging
import secrets
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from random import Random
from threading import Condition
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from . import pace, rules
from .documents import Occasion, altered, draft_order, random_uuid
from .faults import FaultScript
from .options import Options
from .scenery import DEFAULT_SCENERY
from .state import (
    Account,
    Acknowledgement,
    CallRecord,
    Clock,
    Food,
    Order,
    Restaurant,
    Scenery,
    StatusChange,
    Token,
    system_clock,
)

if TYPE_CHECKING:
    from .play import Play

LEDGER_SIZE: Final = 100_000  # calls that the ledger keeps; older ones are removed

_log = logging.getLogger("orderbridge_sandbox")


class CannotOrder(Exception):
    """A customer cannot order: the restaurant is closed or unknown, or every food is inactive."""


class UnknownOrder(LookupError):
    """There is no order with that payment_key."""


class NotAllowed(Exception):
    """The order's status does not allow that."""


class World:
    """Restaurants, foods, orders, tokens, cooldowns and the ledger."""

    def __init__(
        self,
        scenery: Scenery,
        *,
        clock: Clock = system_clock,
        seed: int = 1,
        options: Options | None = None,
        report: Callable[[str], None] = _log.info,
    ) -> None:
        """Begin with the scenery; `report` gets one short line per event, never a secret or a customer."""
        self.scenery = scenery
        self.clock = clock
        self.report = report
        self.lock = Condition()  # over an RLock: methods may call each other
        self.faults = FaultScript(self.now)
        self._first_seed = seed
        self._first_options = options or Options()
        self.play: Play | None = None  # plays a journal
        self.reset()

    @classmethod
    def default(cls, **given: Any) -> "World":
        """Return a world with the four restaurants and five credentials of scenery.py; `given` as for a World."""
        return cls(DEFAULT_SCENERY, **given)

    def reset(self, *, seed: int | None = None) -> None:
        """Restore the initial state, options, faults, ledger and random numbers."""
        with self.lock:
            if seed is not None:
                self._first_seed = seed
            self.options = self._first_options
            self.faults.clear()
            # Separate random streams, so that one more login does not change the orders that follow.
            self._order_random, self.list_random = self._random("orders"), self._random("lists")
            self.trouble_random, self.panel_random = self._random("trouble"), self._random("panel")
            self.accounts = {account.rest_secret_key: account for account in self.scenery.accounts}
            self.restaurants = {restaurant.id: restaurant for restaurant in self.scenery.restaurants}
            self.foods = {(food.menu, food.id): food for food in self.scenery.foods}
            self.open_restaurants = set(self.restaurants)
            self.inactive_foods: set[tuple[str, int]] = set()
            self.orders: dict[str, Order] = {}
            self.tokens: dict[str, Token] = {}
            self.calls_for_trouble = 0
            self.last_answers: dict[tuple[str, str, str], int] = {}
            self.logins: dict[str, list[datetime]] = {}
            self.cooldown_since: dict[tuple[str, str], datetime] = {}
            self.ledger: deque[CallRecord] = deque(maxlen=LEDGER_SIZE)
            self._calls = 0
            self.ticked_orders = 0
            self.began = self.ticked_at = self.now()
            if self.play is not None:
                self.play.reset()
            self.lock.notify_all()

    def _random(self, name: str) -> Random:
        return Random(f"{self._first_seed} {name}")  # noqa: S311 - reproducible on purpose

    # Time.

    def now(self) -> datetime:
        """Return the platform's time: the clock's, advanced or set back by the option."""
        return self.clock() + timedelta(seconds=self.options.clock_offset_seconds)

    def local(self, moment: datetime) -> datetime:
        """Return the moment in the service's zone."""
        return moment.astimezone(ZoneInfo(self.options.timezone))

    def wait_for(self, condition: Callable[[], bool], *, timeout: float) -> bool:
        """Block until the condition holds, checking it after each change. False after `timeout` seconds."""
        with self.lock:
            return self.lock.wait_for(condition, timeout)

    # Switches.

    def set_options(self, **changes: Any) -> Options:
        """Change options. Existing tokens and orders do not change."""
        with self.lock:
            self.options = self.options.changed(changes)
            self.lock.notify_all()
            return self.options

    # Customers and the platform's staff.

    def place_order(
        self,
        *,
        restaurant_id: str | None = None,
        document: Mapping[str, Any] | None = None,
        without: Collection[str] = (),
        where: Collection[str] | None = None,
    ) -> Order:
        """Place a random order with the caller's values, and without the fields of `without`.

        Any JSON value is accepted, including unknown status ids, courier types and payment names. The branch is
        restaurant_id, else the document's if it exists, else a random open one (of `where`, if given). Raises
        CannotOrder.
        """
        with self.lock:
            given = dict(document or {})
            among = self.restaurants if where is None else where
            restaurant = self._orderable(restaurant_id or given.get("restaurant_id"), among)
            now = self.now()
            occasion = Occasion(
                number=100_001 + len(self.orders),
                at=self.local(now),
                restaurant=restaurant,
                foods=self.active_foods(restaurant.menu),
                payment_names=list(self.payment_names().values()),
            )
            draft = draft_order(self._order_random, occasion, self.options.orders_courier)
            placed = altered(draft, self._with_text(given), without)
            order = self._file(placed, restaurant, occasion.number, now)
            self.report(f"order.placed number={order.number} restaurant={restaurant.name!r} status={order.status_id}")
            self.lock.notify_all()
            return order

    def cancel_by_customer(self, payment_key: str) -> Order:
        """Cancel as the customer does. Raises NotAllowed if the order has ended."""
        with self.lock:
            order = self.order(payment_key)
            if rules.next_status(order.status_id, rules.Operation.CANCEL) is None:
                raise NotAllowed(f"order {order.number} has status {order.status_id}")
            order.reason_id = rules.CUSTOMER_CANCELED
            return self.change_status(payment_key, rules.CANCELED, by="customer")

    def change_status(self, payment_key: str, status_id: int, text: str | None = None, *, by: str = "panel") -> Order:
        """Move an order to any status, known or not, as the service's panel or its couriers could."""
        with self.lock:
            order = self.order(payment_key)
            self.move(order, status_id, by=by, text=text)
            self.report(f"order.changed number={order.number} status={status_id} by={by}")
            return order

    def open_restaurant(self, restaurant_id: str) -> None:
        """Open a restaurant."""
        with self.lock:
            self.open_restaurants.add(self.restaurants[restaurant_id].id)
            self.lock.notify_all()

    def close_restaurant(self, restaurant_id: str) -> None:
        """Close a restaurant: no new orders ("Restaurant status")."""
        with self.lock:
            self.open_restaurants.discard(self.restaurants[restaurant_id].id)
            self.lock.notify_all()

    def end_tokens(self, account: str = "") -> int:
        """Make the account's tokens, or without a name all tokens, invalid at once. Return how many there were."""
        with self.lock:
            ended = [text for text, token in self.tokens.items() if account in ("", token.account.name)]
            for text in ended:
                del self.tokens[text]
            self.lock.notify_all()
            return len(ended)

    def refuse_account(self, account: str) -> None:
        """Revoke a credential until a reset: its tokens become invalid, and its logins are refused."""
        with self.lock:
            self.accounts = {secret: known for secret, known in self.accounts.items() if known.name != account}
            self.end_tokens(account)

    def tick(self) -> list[Order]:
        """Do what has become due since the last tick. Return the orders that were placed."""
        with self.lock:
            pace.move_on(self)
            if self.play is not None:
                self.play.advance(self)
            due, where = pace.due_orders(self)
            placed: list[Order] = []
            with suppress(CannotOrder):  # no open restaurant has an active food
                placed = [self.place_order(where=where) for _ in range(due)]
            self.ticked_orders += len(placed)
            return placed

    # Used by service.py, under the lock.

    def order(self, payment_key: str) -> Order:
        """Return the order; raises UnknownOrder."""
        try:
            return self.orders[payment_key.lower()]
        except KeyError:
            raise UnknownOrder(f"no order with the payment_key {payment_key}") from None

    def move(self, order: Order, status_id: int, *, by: str, text: str | None = None) -> None:
        """Write the new status and its history; the order must be acknowledged again (rule 3)."""
        if status_id == order.status_id and text in (None, order.status_text):
            return
        if status_id != order.status_id:
            order.acknowledged = False
        order.status_id = status_id
        order.status_text = self.status_text(status_id) if text is None else text
        order.history.append(StatusChange(status_id=status_id, at=self.now(), by=by))
        self.lock.notify_all()

    def acknowledge(self, order: Order) -> bool:
        """Acknowledge the order in its current status. Return whether it was not acknowledged before."""
        is_first = not order.acknowledged
        order.acknowledged = True
        order.acknowledgements.append(Acknowledgement(status_id=order.status_id, at=self.now()))
        return is_first

    def active_foods(self, menu: str) -> list[Food]:
        """Return the foods of that menu that can be ordered."""
        return [f for key, f in self.foods.items() if f.menu == menu and key not in self.inactive_foods]

    def payment_names(self) -> dict[str, str]:
        """Return the payment methods' names by key."""
        if self.options.prepaid_suffix:
            return dict(rules.PAYMENT_METHODS)
        return {key: name.removesuffix(rules.PREPAID_SUFFIX) for key, name in rules.PAYMENT_METHODS.items()}

    def status_text(self, status_id: int) -> str:
        """Return the Turkish text of a status, also of one that docs/interface.md does not know."""
        if status_id == self.options.needs_payment_status_id:
            return rules.NEEDS_PAYMENT_TEXT
        return rules.STATUS_TEXTS.get(status_id, f"Durum {status_id}")

    def issue_token(self, account: Account) -> Token:
        """Issue a token that is valid for token_seconds from now."""
        if self.options.new_login_ends_old_token:
            self.end_tokens(account.name)
        text = secrets.token_hex(20)  # not from the seed, or after a restart an old token could be another account's
        expires = self.now() + timedelta(seconds=self.options.token_seconds)
        token = self.tokens[text] = Token(text=text, account=account, expires=expires)
        if (most := self.options.tokens_at_once) is not None:
            own = [text for text, one in self.tokens.items() if one.account.name == account.name]
            for old in own[: max(len(own) - max(most, 1), 0)]:
                del self.tokens[old]
        return token

    def account_of(self, token: str | None) -> Account | None:
        """Return the account of a valid token."""
        found = self.tokens.get(token or "")
        return found.account if found and self.now() < found.expires else None

    def record(self, **facts: Any) -> CallRecord:
        """Open a line in the ledger."""
        with self.lock:
            self._calls += 1
            line = CallRecord(number=self._calls, at=self.now(), **facts)
            self.ledger.append(line)
            self.lock.notify_all()
            return line

    def remember(self, operation: str, token: str, argument: str, *, status: int) -> None:
        """Remember the last answer to this call, for the advice about repeated calls."""
        if len(self.last_answers) >= LEDGER_SIZE:
            self.last_answers.clear()
        self.last_answers[operation, token, argument] = status

    def calls(self, operation: str = "", *, account: str = "") -> list[CallRecord]:
        """Return the ledger's lines, of one operation or account if named."""
        with self.lock:
            return [c for c in self.ledger if operation in ("", c.operation) and account in ("", c.account)]

    # Details.

    def _orderable(self, restaurant_id: object, where: Collection[str]) -> Restaurant:
        if isinstance(restaurant_id, str) and restaurant_id in self.restaurants:
            if restaurant_id not in self.open_restaurants:
                raise CannotOrder(f"restaurant {restaurant_id} is closed")
            candidates = [self.restaurants[restaurant_id]]
        else:
            candidates = [r for r in self.restaurants.values() if r.id in self.open_restaurants and r.id in where]
        candidates = [r for r in candidates if self.active_foods(r.menu)]
        if not candidates:
            raise CannotOrder("no restaurant is open and has an active food")
        return self._order_random.choice(candidates)

    def _with_text(self, given: dict[str, Any]) -> dict[str, Any]:
        status_id = given.get("status_id")
        if type(status_id) is int:
            return {"status_text": self.status_text(status_id), **given}
        return given

    def _file(self, placed: dict[str, Any], restaurant: Restaurant, number: int, now: datetime) -> Order:
        key = placed.get("payment_key")
        status_id = placed.get("status_id")
        order = Order(
            # An order without a valid key can be listed, but no path finds it.
            key=key.lower() if isinstance(key, str) else random_uuid(self._order_random),
            number=number,
            restaurant_id=restaurant.id,
            placed=placed,
            status_id=status_id if type(status_id) is int else rules.RECEIVED,
            status_text=str(placed.get("status_text", "")),
            history=[],
        )
        order.history.append(StatusChange(status_id=order.status_id, at=now, by="customer"))
        self.orders[order.key] = order
        return order
