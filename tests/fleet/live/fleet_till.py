"""A POS of all branches as a process, in plain SQL: accepts new orders, and switches foods and restaurants.

    python -m tests.fleet.live.fleet_till URL PAUSE_S NAME...

It writes to random ones of these accounts, a food or a restaurant of its own with each row. A server that is away is
tried again. It ends when its input does.
"""

import random
import sys
import threading
import uuid

from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError

NEW = text("SELECT payment_key FROM delivery_new_orders")
ACCEPT = text(
    "INSERT INTO delivery_actions (action, payment_key, preparing_time, request_id) VALUES ('accept', :key, 25, :key)"
)
THERE = text("SELECT 1 FROM delivery_actions WHERE request_id = :key")
TAKEN_OVER = text("UPDATE delivery_orders SET pos_revision = revision WHERE payment_key = :key")
FOOD = text("INSERT INTO delivery_actions (action, food_id, account) VALUES ('deactivate_food', :food, :name)")
CLOSE = text("INSERT INTO delivery_actions (action, restaurant_id, account) VALUES ('close_restaurant', :key, :name)")


def turn(connection: Connection, names: list[str]) -> None:
    for key in connection.execute(NEW).scalars().all():
        if connection.execute(THERE, {"key": key}).first() is None:
            connection.execute(ACCEPT, {"key": key})
        connection.execute(TAKEN_OVER, {"key": key})
    connection.execute(FOOD, {"food": random.getrandbits(48) + 1, "name": random.choice(names)})
    connection.execute(CLOSE, {"key": str(uuid.uuid4()), "name": random.choice(names)})


def main(url: str, pause_s: float, names: list[str]) -> None:
    """Each statement is a transaction."""
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    while not over.wait(pause_s):
        try:
            with engine.connect() as connection:
                while not over.wait(pause_s):
                    turn(connection, names)
        except DBAPIError:
            continue


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
