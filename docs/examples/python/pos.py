"""A mini POS for orderbridge. Python 3 alone, nothing to install.

python3 pos.py DATABASE ACCOUNT FOOD_ID [ORDERS]

It switches a food of that account off, then takes orders over: one that holds the food is cancelled, any
other accepted. With ORDERS it ends after so many orders, once everything that it asked for has its verdict;
without, it runs until it is stopped.
"""

import sqlite3
import sys
import time

LOOK_S = 0.5
READY_IN_MINUTES = 25
OUT_OF_STOCK = 1  # delivery_cancel_reasons


def main() -> None:
    path, account, food_id = sys.argv[1], sys.argv[2], int(sys.argv[3])
    orders = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    # isolation_level=None: a transaction begins where the code says BEGIN. timeout: wait that long for the daemon's.
    db = sqlite3.connect(path, isolation_level=None, timeout=5)
    db.row_factory = sqlite3.Row

    waiting: dict[int, str] = {}  # our rows without a verdict: id, and what we call it
    db.execute("BEGIN IMMEDIATE")
    ask(db, waiting, f"deactivate_food {food_id}", action="deactivate_food", account=account, food_id=food_id)
    db.execute("COMMIT")

    taken = 0
    while True:
        taken += take_new(db, waiting, food_id)
        show_verdicts(db, waiting)
        show_changed(db)
        if orders and taken >= orders and not waiting:
            return
        time.sleep(LOOK_S)


def take_new(db: sqlite3.Connection, waiting: dict[int, str], food_id: int) -> int:
    """Print each new order, then say that we have it and what becomes of it, in one transaction."""
    new = db.execute(
        "SELECT payment_key, revision, order_number, status, payment_method, COALESCE(ROUND(total, 2), 0) AS total,"
        " problem FROM delivery_new_orders ORDER BY received_utc"
    ).fetchall()
    for order in new:
        key, reference = order["payment_key"], f"A-{order['order_number']}"
        print(f"new {reference}: {order['total']:.2f} {order['payment_method']}")
        if order["problem"]:
            print(f"  look at it in the service's panel: {order['problem']}")
        sold_out = False
        for item in db.execute(
            "SELECT quantity, name, food_id FROM delivery_order_items WHERE payment_key = ? ORDER BY line_no", (key,)
        ):
            print(f"  {item['quantity']} x {item['name']}")
            sold_out = sold_out or item["food_id"] == food_id

        db.execute("BEGIN IMMEDIATE")
        db.execute(
            "UPDATE delivery_orders SET pos_revision = ?, pos_reference = ? WHERE payment_key = ?",
            (order["revision"], reference, key),
        )
        if order["status"] == "RECEIVED":  # nobody has answered the customer yet
            if sold_out:
                ask(db, waiting, f"cancel {reference}", action="cancel", payment_key=key, reason_id=OUT_OF_STOCK)
            else:
                ask(
                    db,
                    waiting,
                    f"accept {reference}",
                    action="accept",
                    payment_key=key,
                    preparing_time=READY_IN_MINUTES,
                )
        db.execute("COMMIT")
    return len(new)


def ask(db: sqlite3.Connection, waiting: dict[int, str], words: str, **columns: object) -> None:
    """A row in the outbox. A constraint that it breaks is an error of this program, and raises."""
    row = db.execute(
        f"INSERT INTO delivery_actions ({', '.join(columns)}, created_by) VALUES ({'?, ' * len(columns)}'mini POS')",
        tuple(columns.values()),
    )
    waiting[row.lastrowid] = words


def show_changed(db: sqlite3.Connection) -> None:
    """Show what became of the orders that we have, and note the revision that we have shown."""
    changed = db.execute(
        "SELECT payment_key, revision, pos_reference, status, last_change"
        " FROM delivery_changed_orders ORDER BY changed_utc"
    ).fetchall()
    for order in changed:
        print(f"changed {order['pos_reference']}: {order['status']} ({order['last_change']})")
        db.execute("BEGIN IMMEDIATE")
        db.execute(
            "UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ?",
            (order["revision"], order["payment_key"]),
        )
        db.execute("COMMIT")


def show_verdicts(db: sqlite3.Connection, waiting: dict[int, str]) -> None:
    """Tell the cashier how each row ended."""
    for row_id in list(waiting):
        row = db.execute(
            "SELECT state, error_text FROM delivery_actions WHERE id = ? AND state NOT IN ('pending', 'sending')",
            (row_id,),
        ).fetchone()
        if row is not None:
            print(f"verdict {waiting.pop(row_id)}: {row['state']} {row['error_text'] or ''}".rstrip())


main()
