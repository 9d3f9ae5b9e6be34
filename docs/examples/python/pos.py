"""A mini POS for orderbridge. Python 3 alone, nothing to install.

    python3 pos.py DATABASE [--orders N]     the till, until it is stopped or has taken N orders over
    python3 pos.py DATABASE VERB ARGUMENTS   an action of a person, while the till runs

    accept KEY MINUTES   cancel KEY REASON_ID   on_the_way KEY   complete KEY   withdraw KEY (the waiting action)
    open RESTAURANT_ID   close RESTAURANT_ID   food_off FOOD_ID RESTAURANT_ID   food_on FOOD_ID RESTAURANT_ID
    ticket KEY (all tickets of the order)   collect KEY (the amount to collect)

The till takes orders over and accepts them. An order with a food that was switched off is cancelled. A scheduled
order, or one with a `problem`, waits for a person. The till may be killed at any moment, and then continues: a ticket
that may already be printed is printed again after a minute, with PERHAPS A SECOND COPY on it. Several tills may run
on one file, also under one name; what one leaves for a minute, another one prints.
"""

import contextlib
import pathlib
import sqlite3
import sys
import time

TILL = "K1"  # each till has its own name
LOOK_S = 0.5
READY_IN_MINUTES = 25
OUT_OF_STOCK = 1  # delivery_cancel_reasons

# The two tables of the POS guide. till_papers: the kitchen's tickets; a paper waits, is begun, or is out.
# till_asked: our actions whose results were not shown to a person yet.
TABLES = """
    CREATE TABLE IF NOT EXISTS till_papers (
        payment_key TEXT NOT NULL, revision INTEGER NOT NULL, kind TEXT NOT NULL, till TEXT NOT NULL,
        ticket TEXT NOT NULL, paper TEXT NOT NULL DEFAULT 'waits', tries INTEGER NOT NULL DEFAULT 0,
        since INTEGER NOT NULL DEFAULT (strftime('%s', 'now')), PRIMARY KEY (payment_key, revision, kind));
    CREATE TABLE IF NOT EXISTS till_asked (request_id TEXT PRIMARY KEY, till TEXT NOT NULL);
"""
OURS = f"pos_reference LIKE '{TILL}-%'"
CHANGED = f"""delivery_changed_orders WHERE {OURS} OR (strftime('%s', 'now') - strftime('%s', changed_utc) > 60
    AND payment_key IN (SELECT payment_key FROM till_papers))"""  # and those that another till left a minute ago
# Papers that another till or a printer left a minute ago are printed, too; of an ended order, only STOP.
WAITING = f"""SELECT papers.rowid AS id, paper, tries, CASE WHEN tries > 0 THEN 'PERHAPS A SECOND COPY ' ELSE '' END
    || CASE WHEN till <> '{TILL}' THEN 'from ' || till || ' ' ELSE '' END || ticket AS ticket
    FROM till_papers AS papers JOIN delivery_orders AS orders ON orders.payment_key = papers.payment_key
    WHERE (kind = 'STOP' OR ended_utc IS NULL)
        AND ((paper = 'waits' AND till = '{TILL}') OR (paper <> 'out' AND since < strftime('%s', 'now') - 60))
    ORDER BY papers.rowid"""
# is_later: more than an hour ahead, by this computer's time zone. NULL: not scheduled, or an unreadable time.
ORDERS = """SELECT *, datetime(scheduled_for) > datetime('now', 'localtime', '+60 minutes') AS is_later,
    CASE WHEN amount_due IS NULL THEN 'ask' ELSE printf('%.2f', amount_due) END AS collect"""
# Whether the last switch of one of the order's foods was off.
SOLD_OUT = """SELECT 1 FROM delivery_order_items AS item WHERE payment_key = ? AND 'deactivate_food' = (
    SELECT action FROM delivery_actions WHERE food_id = item.food_id AND state IN ('pending', 'sending', 'done')
        AND restaurant_id IN (SELECT id FROM delivery_restaurants WHERE account = ?) ORDER BY id DESC LIMIT 1)"""
# Each item, its options below it, then its note. NULL: the platform sent no value.
LINES = """SELECT line FROM (
    SELECT payment_key, line_no, 1 AS part, 0 AS option_no,
        '  ' || COALESCE(quantity, '?') || ' x ' || COALESCE(name, '?') AS line FROM delivery_order_items
    UNION ALL SELECT payment_key, line_no, 2, option_no, '    ' || COALESCE(operation, '?') || ' '
        || COALESCE(group_name, '?') || ': ' || COALESCE(option_name, '?') FROM delivery_order_item_options
    UNION ALL SELECT payment_key, line_no, 3, 0, '    note: ' || note FROM delivery_order_items WHERE note <> ''
) WHERE payment_key = ? ORDER BY line_no, part, option_no"""
TOLD = "SELECT ticket FROM till_papers WHERE payment_key = ? AND paper <> 'waits' ORDER BY rowid"
LAMPS = """SELECT lamp, account, sentence, remedy FROM delivery_lamp
    UNION ALL SELECT 'red', '?', 'orderbridge has not run yet', NULL WHERE NOT EXISTS (SELECT 1 FROM delivery_lamp)"""
VERBS = {  # the action, and the columns for its arguments
    "accept": ("accept", "payment_key", "preparing_time"),
    "cancel": ("cancel", "payment_key", "reason_id"),
    "on_the_way": ("on_the_way", "payment_key"),
    "complete": ("complete", "payment_key"),
    "open": ("open_restaurant", "restaurant_id"),
    "close": ("close_restaurant", "restaurant_id"),
    "food_off": ("deactivate_food", "food_id", "restaurant_id"),
    "food_on": ("activate_food", "food_id", "restaurant_id"),
}

# isolation_level=None: a transaction begins where the code says BEGIN. timeout: how long to wait for the daemon's.
# mode=rw: never create an empty file.
uri = pathlib.Path(sys.argv[1]).resolve().as_uri() + "?mode=rw"
db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=5)
db.row_factory = sqlite3.Row


def rows(sql, *values):
    return db.execute(sql, values).fetchall()  # all rows, so that no cursor is open during a write


def write(sql, *values):
    """The number of changed rows."""
    return db.execute(sql, values).rowcount


@contextlib.contextmanager
def transaction():
    db.execute("BEGIN IMMEDIATE")  # a deferred BEGIN fails at once beside another writer, whatever the timeout
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def run(orders):
    # A ticket has customers' data: orderbridge blanks its own 90 days after the end, too.
    write("""DELETE FROM till_papers WHERE payment_key IN
        (SELECT payment_key FROM delivery_orders WHERE ended_utc < datetime('now', '-90 days'))""")
    taken, lamps = 0, []
    while True:
        try:
            take_changed()
            taken += take_new()
            take_scheduled()
            print_waiting()
            show_verdicts()
            lamps = show_lamps(lamps)
        except sqlite3.Error as error:  # perhaps a long lock: the next round tries again
            print(f"!!! database: {error}", flush=True)
        left = rows(f"SELECT 1 FROM till_asked WHERE till = '{TILL}' UNION ALL SELECT 1 FROM {CHANGED}")
        if orders is not None and taken >= orders and not left:
            return
        time.sleep(LOOK_S)


def take_new():
    """Take each new order over. Our number, the ticket and the answer are written together or not at all."""
    taken = 0
    for order in rows(f"{ORDERS} FROM delivery_new_orders ORDER BY received_utc, payment_key"):
        key, reference = order["payment_key"], f"{TILL}-{order['order_number']}"
        sold_out = order["status"] == "RECEIVED" and rows(SOLD_OUT, key, order["account"])
        kind = "SOLD OUT" if sold_out else "LATER" if order["is_later"] else "NEW"
        ticket = ticket_text(order, kind, reference)
        with transaction():
            # No row changed: another till has it, or it was cancelled after we read it.
            mine = write(
                """UPDATE delivery_orders SET pos_revision = ?, pos_reference = ?
                    WHERE payment_key = ? AND pos_revision = 0 AND ended_utc IS NULL""",
                *(order["revision"], reference, key),
            )
            if mine:
                remember(order, kind, ticket)
                if sold_out:
                    ask_once(action="cancel", payment_key=key, reason_id=OUT_OF_STOCK)
                else:
                    accept(order)
        taken += mine
    return taken


def accept(order):
    if order["status"] == "RECEIVED" and not waits_for_person(order):
        ask_once(action="accept", payment_key=order["payment_key"], preparing_time=READY_IN_MINUTES)


def waits_for_person(order):
    """The problem `total_mismatch` alone does not need a person before the accept."""
    doubts = [code for code in (order["problem"] or "").split(",") if code and not code.startswith("total_mismatch")]
    return doubts or (order["scheduled_for"] and order["is_later"] != 0)


def ask_once(**columns):
    """Insert a row unless the action was requested before: only a person tries again."""
    request = f"{columns['action']}-{columns['payment_key']}"
    if not rows("SELECT 1 FROM delivery_actions WHERE request_id = ?", request):
        ask(request_id=request, **columns)


def ask(**columns):
    """Insert a row into the outbox, and note that we wait for its result."""
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    write(f"INSERT INTO delivery_actions ({names}, created_by) VALUES ({marks}, 'mini POS')", *columns.values())
    write("INSERT INTO till_asked (request_id, till) VALUES (?, ?)", columns["request_id"], TILL)


def take_scheduled():
    """Print the scheduled orders that are now due."""
    for order in rows(f"""{ORDERS} FROM delivery_open_orders AS due WHERE {OURS} AND COALESCE(is_later, 0) = 0
            AND EXISTS (SELECT 1 FROM till_papers WHERE payment_key = due.payment_key AND kind = 'LATER')
            AND NOT EXISTS (SELECT 1 FROM till_papers WHERE payment_key = due.payment_key AND kind = 'NOW')"""):
        ticket = ticket_text(order, "NOW", order["pos_reference"])
        with transaction():
            remember(order, "NOW", ticket)
            accept(order)


def take_changed():
    """Read our changed orders. The revision that we read and the kitchen's ticket are written together."""
    for order in rows(f"{ORDERS} FROM {CHANGED} ORDER BY changed_utc, payment_key"):
        noted = "UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ? AND pos_revision < ?"
        with transaction():
            if write(noted, order["revision"], order["payment_key"], order["revision"]):
                tell_kitchen(order)
        over = ", over" if order["ended_utc"] else ""
        print(f"{order['pos_reference']}: {order['status']}{over}", flush=True)


def tell_kitchen(order):
    key, reference = order["payment_key"], order["pos_reference"]
    if order["ended_utc"]:  # first, because an ended order is never cooked
        write("DELETE FROM till_papers WHERE payment_key = ? AND paper = 'waits'", key)
        write("UPDATE till_papers SET paper = 'out' WHERE payment_key = ? AND paper = 'begun'", key)
    last = rows("SELECT kind, revision FROM till_papers WHERE payment_key = ? ORDER BY rowid DESC LIMIT 1", key)
    kind, revision = last[0] if last else (None, 0)
    if order["ended_utc"]:
        # SOLD OUT: our own cancel, before the kitchen cooked; its result is shown anyway.
        if order["ended_by"] == "cancelled" and kind not in (None, "STOP", "SOLD OUT"):
            remember(order, "STOP", f"STOP {reference}\n  cancelled: do not cook it, do not send it out")
    elif kind in (None, "STOP") or order["contents_revision"] > revision:  # other items, notes or amounts
        remember(order, "CHANGED", ticket_text(order, "CHANGED", reference))


def remember(order, kind, ticket):
    write(
        "INSERT OR IGNORE INTO till_papers (payment_key, revision, kind, till, ticket) VALUES (?, ?, ?, ?, ?)",
        *(order["payment_key"], order["revision"], kind, TILL, ticket),
    )


def ticket_text(order, kind, reference):
    """The amount to collect, the items to cook, and remarks."""
    key = order["payment_key"]
    lines = [f"{kind} {reference}", f"  collect: {order['collect']}, {order['payment_method'] or '?'}"]
    if kind == "SOLD OUT":
        lines.append("  do not cook it: we cancel it")
    if order["scheduled_for"]:
        lines.append(f"  {'not now: for' if order['is_later'] else 'for'} {order['scheduled_for']}")
    if order["problem"]:
        lines.append(f"  look at it in the platform's panel: {order['problem']}")
    if order["status"] == "RECEIVED" and waits_for_person(order):
        lines.append(f"  a person must accept it: {key}")
    if order["note"]:
        lines.append(f"  note: {order['note']}")
    return "\n".join([*lines, *(row["line"] for row in rows(LINES, key))])


def print_waiting():
    """After the COMMIT. If no row changed, another loop or till has begun it, or the order has ended."""
    begin = """UPDATE till_papers SET paper = 'begun', tries = tries + 1, since = strftime('%s', 'now')
        WHERE rowid = ? AND paper = ? AND tries = ?"""
    for row in rows(WAITING):
        if write(begin, row["id"], row["paper"], row["tries"]):
            print(row["ticket"], flush=True)  # print to your printer here
            write("UPDATE till_papers SET paper = 'out' WHERE rowid = ?", row["id"])


def show_verdicts():
    """Show the cashier the result of each of our rows, failures with an alarm."""
    for row in rows(f"""SELECT asked.request_id, action, state, error_text,
            COALESCE(pos_reference, food_id, actions.restaurant_id) AS about FROM till_asked AS asked
            JOIN delivery_actions AS actions ON actions.request_id = asked.request_id
            LEFT JOIN delivery_orders AS orders ON orders.payment_key = actions.payment_key
            WHERE till = '{TILL}' AND state NOT IN ('pending', 'sending') ORDER BY actions.id"""):
        loud = "!!! " if row["state"] in ("refused", "failed", "expired") else ""
        print(f"{loud}{row['action']} {row['about']}: {row['state']} {row['error_text'] or ''}".rstrip(), flush=True)
        write("DELETE FROM till_asked WHERE request_id = ?", row["request_id"])


def show_lamps(last):
    """Show changes of the lamp of orderbridge itself. It is correct even if the daemon is dead."""
    lamps = [tuple(row) for row in rows(LAMPS)]
    for lamp, account, sentence, remedy in lamps:
        if (lamp, account, sentence, remedy) not in last and (last or lamp != "green"):
            print(f"lamp {lamp}, {account}: {sentence} {remedy or ''}".rstrip(), flush=True)
    return lamps


# A person's action. Returns the error, 64 for an unknown action, or None when it is done.
def step(verb, *arguments):
    order = next(iter(rows(f"{ORDERS} FROM delivery_orders WHERE payment_key = ?", *arguments[:1] or [""])), None)
    if verb in VERBS and len(arguments) == len(VERBS[verb]) - 1:
        action, *names = VERBS[verb]
        if names[0] == "payment_key" and order is None:
            return "no such order"
        if verb == "on_the_way" and order["courier_type"] not in (None, "restaurant"):
            return f"the restaurant does not bring it: {order['courier_type']}"
        return click(verb, action, dict(zip(names, arguments, strict=True)))
    if verb not in ("ticket", "collect", "withdraw") or order is None:
        print("no such order or no such verb\n\n" + __doc__, file=sys.stderr)
        return 64
    if verb == "collect":
        print(order["collect"])
    elif verb == "ticket":
        for row in rows(TOLD, order["payment_key"]):
            print(row["ticket"])
    elif not write(
        "UPDATE delivery_actions SET withdraw = 1 WHERE payment_key = ? AND state IN ('pending', 'sending')",
        order["payment_key"],
    ):
        print("nothing of it waits")
    return None


def click(verb, action, columns):
    """A new try has a new request_id: …, …-2, …-3. A double click is not a new try: it finds the first one's row."""
    is_order = "payment_key" in columns
    request = "-".join([verb, columns["payment_key"]] if is_order else [verb, *columns.values()])
    with transaction():
        tries = rows(
            """SELECT CASE WHEN EXISTS (SELECT 1 FROM delivery_actions AS newer WHERE newer.id > mine.id
                    AND newer.restaurant_id = mine.restaurant_id AND newer.food_id IS mine.food_id)
                  THEN 'switched back' ELSE state END AS state,
                finished_utc > datetime('now', '-10 seconds') AS is_fresh FROM delivery_actions AS mine
                WHERE request_id = ? OR request_id LIKE ? || '-%' ORDER BY id""",
            *(request, request),
        )
        state = tries[-1]["state"] if tries else None
        # An order is accepted once. A restaurant may be opened again tomorrow, but not twice by a double click.
        if state in ("pending", "sending") or (state == "done" and (is_order or tries[-1]["is_fresh"])):
            print(f"asked already: {state}")
        else:
            ask(request_id=f"{request}-{len(tries) + 1}" if tries else request, action=action, **columns)


db.executescript(TABLES)
verb, *arguments = sys.argv[2:] or ["--orders"]
try:
    sys.exit(run(int(arguments[0]) if arguments else None) if verb == "--orders" else step(verb, *arguments))
except sqlite3.IntegrityError as error:
    sys.exit(f"refused: {error}")  # by a constraint: an error of the program or a wrong argument
