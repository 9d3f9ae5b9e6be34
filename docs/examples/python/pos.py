"""A mini POS for orderbridge. Python 3 alone, nothing to install.

python3 pos.py DATABASE ACCOUNT FOOD_ID [ORDERS]

It switches a food of that account off, then takes orders over: one that holds the food is cancelled, any
other accepted. With ORDERS it ends after so many orders, once everything that it asked for has its verdict;
without, it runs until it is stopped. Several may run on one file, and each may be stopped at any moment.
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

    show_open(db)
    db.execute("BEGIN IMMEDIATE")
    ask(db, action="deactivate_food", account=account, food_id=food_id)
    db.execute("COMMIT")
    waiting = {  # our rows without a verdict, an earlier run's among them
        row["id"]
        for row in db.execute(
            "SELECT id FROM delivery_actions WHERE created_by = 'mini POS' AND state IN ('pending', 'sending')"
        )
    }

    taken = 0
    while True:
        taken += take_new(db, waiting, food_id)
        show_verdicts(db, waiting)
        show_changed(db)
        if orders and taken >= orders and not waiting:
            return
        time.sleep(LOOK_S)


def show_open(db: sqlite3.Connection) -> None:
    """An earlier run may have stopped before it had printed what it took over: show it again."""
    for order in db.execute(
        "SELECT * FROM delivery_open_orders WHERE pos_reference LIKE 'A-%' ORDER BY received_utc, payment_key"
    ).fetchall():
        print(f"open {order['pos_reference']}: {order['status']}")
        show(db, order)


def take_new(db: sqlite3.Connection, waiting: set[int], food_id: int) -> int:
    """Take each new order over and ask for what becomes of it, in one transaction. Only then print it."""
    taken = 0
    for order in db.execute("SELECT * FROM delivery_new_orders ORDER BY received_utc, payment_key").fetchall():
        key, reference = order["payment_key"], f"A-{order['order_number']}"
        sold_out = db.execute(
            "SELECT 1 FROM delivery_order_items WHERE payment_key = ? AND food_id = ?", (key, food_id)
        ).fetchone()
        db.execute("BEGIN IMMEDIATE")
        changed = db.execute(
            "UPDATE delivery_orders SET pos_revision = ?, pos_reference = ? WHERE payment_key = ? AND pos_revision = 0",
            (order["revision"], reference, key),
        ).rowcount
        if changed and order["status"] == "RECEIVED":  # nobody has answered the customer yet
            if sold_out:
                row = ask(db, request_id=f"cancel-{key}", action="cancel", payment_key=key, reason_id=OUT_OF_STOCK)
            else:
                minutes = READY_IN_MINUTES
                row = ask(db, request_id=f"accept-{key}", action="accept", payment_key=key, preparing_time=minutes)
            waiting.add(row)
        db.execute("COMMIT")
        if changed:  # otherwise another till has it, and prints it
            print(f"new {reference}")
            show(db, order)
            taken += 1
    return taken


def show(db: sqlite3.Connection, order: sqlite3.Row) -> None:
    """What to collect, what to cook, and what else to know."""
    due = order["amount_due"]  # NULL is no 0: nobody knows
    print("  ask what to collect" if due is None else f"  collect {due:.2f}", said(order["payment_method"]), sep=", ")
    if order["scheduled_for"]:
        print(f"  not now: for {order['scheduled_for']}")
    if order["problem"]:
        print(f"  look at it in the service's panel: {order['problem']}")
    if order["note"]:
        print(f"  note: {order['note']}")
    for item in db.execute(
        "SELECT * FROM delivery_order_items WHERE payment_key = ? ORDER BY line_no", (order["payment_key"],)
    ):
        print(f"  {said(item['quantity'])} x {said(item['name'])}")
        for option in db.execute(
            "SELECT * FROM delivery_order_item_options WHERE payment_key = ? AND line_no = ? ORDER BY option_no",
            (order["payment_key"], item["line_no"]),
        ):
            print(f"    {said(option['operation'])} {said(option['group_name'])}: {said(option['option_name'])}")
        if item["note"]:
            print(f"    note: {item['note']}")


def said(value: object) -> object:
    """NULL: the service did not say."""
    return "?" if value is None else value


def ask(db: sqlite3.Connection, **columns: object) -> int:
    """A row in the outbox: its id. What was asked for under the same request_id is not asked for again."""
    asked = db.execute("SELECT id FROM delivery_actions WHERE request_id = ?", (columns.get("request_id"),)).fetchone()
    if asked:
        return asked["id"]
    row = db.execute(
        f"INSERT INTO delivery_actions ({', '.join(columns)}, created_by) VALUES ({'?, ' * len(columns)}'mini POS')",
        tuple(columns.values()),
    )
    return row.lastrowid


def show_changed(db: sqlite3.Connection) -> None:
    """Show what became of the orders that we have, and note the revision that we have shown."""
    for order in db.execute(
        "SELECT * FROM delivery_changed_orders WHERE pos_reference LIKE 'A-%' ORDER BY changed_utc"
    ).fetchall():
        print(f"changed {order['pos_reference']}: {order['status']} ({order['last_change']})")
        if order["ended_utc"]:  # what is over is never printed to be cooked
            print(f"  STOP: {order['ended_by']}")
        elif order["contents_revision"] > order["pos_revision"]:  # other items, notes or money than we have printed
            show(db, order)
        db.execute("BEGIN IMMEDIATE")
        db.execute(
            "UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ?",
            (order["revision"], order["payment_key"]),
        )
        db.execute("COMMIT")


def show_verdicts(db: sqlite3.Connection, waiting: set[int]) -> None:
    """Tell the cashier how each row ended."""
    for row_id in sorted(waiting):
        row = db.execute(
            "SELECT action, food_id, pos_reference, state, error_text FROM delivery_actions"
            " LEFT JOIN delivery_orders ON delivery_orders.payment_key = delivery_actions.payment_key"
            " WHERE id = ? AND state NOT IN ('pending', 'sending')",
            (row_id,),
        ).fetchone()
        if row is not None:
            about = row["pos_reference"] or row["food_id"]
            print(f"verdict {row['action']} {about}: {row['state']} {row['error_text'] or ''}".rstrip())
            waiting.remove(row_id)


main()
