"""Judges the recorded facts of a scenario, with one function for each criterion."""

from collections.abc import Callable

from orderbridge_certify.seen import ACTIONS, Call, Fact, Judge, Judged, Note, Order, Row, Seen, Verdict, facts

AT_ONCE_S = 1.0  # the tolerance between two clocks, and between a commit and its observation
LONGEST_LOCK_S = 2.0
PREPARING_TIME = range(1, 1441)


def _verdict(right: bool, why: str, shown: tuple[Fact, ...] = ()) -> Judged:
    return Judged(Verdict.PASS, "", shown) if right else Judged(Verdict.FAIL, why, shown)


def _is(right: bool, *shown: Order | Note | Row | Call, why: str) -> Judged:
    return _verdict(right, why, facts(*shown))


def not_seen(why: str) -> Judged:
    """The verdict if there was nothing to judge."""
    return Judged(Verdict.NOT_SEEN, why)


# ---- taking over -----------------------------------------------------------------------------------------------------


def taken_over(seen: Seen) -> Judged:
    """Each order is taken over within the time limit, counted from when the till could see it."""
    if any(order.visible_s is None for order in seen.orders):
        return not_seen("not_arrived")
    longest = seen.within_s + AT_ONCE_S
    late = [one for one in seen.orders if one.taken_s is None or one.taken_s - (one.visible_s or 0.0) > longest]
    shown = late or (seen.orders if len(seen.orders) <= 3 else ())  # noqa: PLR2004 - forty right ones are not listed
    return _is(not late, *shown, why="not_taken")


def in_order(seen: Seen) -> Judged:
    """The orders are taken over in the order of their arrival."""
    taken = [letter for _, letter in sorted((one.taken_s or 0.0, one.letter) for one in seen.orders)]
    return _is(taken == sorted(taken), *seen.orders, why="other_order")


def taken_once(seen: Seen) -> Judged:
    """No order gets a second reference, because that means a second ticket."""
    written = [note for note in seen.notes if note.column == "pos_reference"]
    twice = [note for note in written if sum(one.letter == note.letter for one in written) > 1]
    return _is(not twice, *twice, why="twice")


def has_reference(seen: Seen) -> Judged:
    """The till has written its own number to the order."""
    return _is(all(order.reference for order in seen.orders), *seen.orders, why="no_reference")


def never_taken(seen: Seen) -> Judged:
    """An order that arrived as cancelled is not cooked."""
    return _is(all(order.taken_s is None for order in seen.orders), *seen.orders, why="taken")


# ---- the outbox ------------------------------------------------------------------------------------------------------


def asked_for(verb: str, *, most: int = 1) -> Judge:
    """The outbox has one row for the action, and not two."""

    def judged(seen: Seen) -> Judged:
        rows = seen.rows_of(ACTIONS.get(verb, verb))
        if not rows:
            is_able = any(answer.able for answer in seen.answers_to(verb))
            return Judged(Verdict.FAIL, "no_row") if is_able else not_seen("no_hands")
        return _is(len(rows) <= most, *rows, why="too_many_rows")

    return judged


def carried_out(action: str) -> Judge:
    """The action is done, by one call that the marketplace accepted."""

    def judged(seen: Seen) -> Judged:
        rows, calls = seen.rows_of(action), seen.calls_of(action)
        if not rows:
            return not_seen("no_row")
        took = [call for call in calls if call.http_status == 200]  # noqa: PLR2004 - HTTP's OK
        return _is(any(row.state == "done" for row in rows) and len(took) == 1, *rows, *calls, why="not_carried_out")

    return judged


def arguments(action: str, right: Callable[[Row], bool]) -> Judge:
    """The rows of the action have the right arguments."""

    def judged(seen: Seen) -> Judged:
        rows = seen.rows_of(action)
        return _is(all(right(row) for row in rows), *rows, why="arguments") if rows else not_seen("no_row")

    return judged


def none_of(action: str) -> Judge:
    """The outbox has no row for this action."""

    def judged(seen: Seen) -> Judged:
        rows = seen.rows_of(action)
        return _is(not rows, *rows, why="row_too_many")

    return judged


def none_after(mark: str) -> Judge:
    """The till inserts no row after the mark."""

    def judged(seen: Seen) -> Judged:
        if mark not in seen.marks:
            return not_seen("nothing_to_see")
        late = [row for row in seen.rows if row.at_s > seen.marks[mark] + AT_ONCE_S]
        return _is(not late, *late, why="row_too_many")

    return judged


def taken_back(seen: Seen) -> Judged:
    """The last row waited, and was withdrawn instead of sent."""
    if not seen.rows or not any(answer.able for answer in seen.answers_to("withdraw")):
        return not_seen("no_hands")
    return _is(seen.rows[-1].state == "withdrawn", *seen.rows, why="not_taken_back")


# ---- changes ---------------------------------------------------------------------------------------------------------


def noted(mark: str, limit: str) -> Judge:
    """The till confirms the revision after the mark within the time limit."""

    def judged(seen: Seen) -> Judged:
        if mark not in seen.marks:
            return not_seen("nothing_to_see")
        (order,) = seen.orders
        since, longest = seen.marks[mark], seen.marks[limit]
        found = [note for note in seen.notes if note.column == "pos_revision" and note.at_s >= since - AT_ONCE_S]
        in_time = [note for note in found if note.at_s - since <= longest + AT_ONCE_S]
        if in_time and order.pos_revision == order.revision:
            return Judged(Verdict.PASS, "", facts(order))
        behind = {"letter": order.letter, "revision": order.revision, "pos_revision": order.pos_revision}
        return Judged(Verdict.FAIL, "not_noted", (behind,))

    return judged


MOST_TRIES = 2


def revision_read(seen: Seen) -> Judged:
    """After waiting for the lock, the till writes the revision that it had read, and not a newer one."""
    if seen.marks.get("reads_locked"):
        return not_seen("reads_locked")
    right, wrong = seen.marks.get("read", 0), seen.marks.get("unread", 0)
    written = [one for one in seen.notes if one.column == "pos_revision" and one.value == one.revision]
    if right:
        return Judged(Verdict.PASS)
    return _is(False, *written[-1:], why="unread") if wrong >= MOST_TRIES else not_seen("not_waiting")


# ---- money and tickets -----------------------------------------------------------------------------------------------


def shown_right(verb: str) -> Judge:
    """The operator's output is right. The verdict shows whether a person judged it."""

    def judged(seen: Seen) -> Judged:
        if any(answer.needs_person for answer in seen.answers_to(verb)):
            return not_seen("needs_person")
        answers = [answer for answer in seen.answers_to(verb) if answer.able]
        if not answers or any(answer.holds is None for answer in answers):
            return not_seen("no_hands")
        wrong = [answer for answer in answers if not answer.holds]
        if any(answer.by_person for answer in answers):
            return Judged(Verdict.BY_A_PERSON, "no" if wrong else "yes")
        return _verdict(not wrong, "other_ticket", tuple({"letter": one.letter, **one.shown} for one in wrong))

    return judged


def books_total(seen: Seen) -> Judged:
    """pos_total, if it is written, equals the total."""
    written = [order for order in seen.orders if order.pos_total is not None]
    if not written:
        return not_seen("no_pos_total")
    totals = [(round(one.pos_total or 0, 2), one.total) for one in written]
    right = all(total is not None and noted == round(total, 2) for noted, total in totals)
    return _is(right, *written, why="other_total")


def none_of_them(mark: str) -> Judge:
    """No order was counted under this mark."""

    def judged(seen: Seen) -> Judged:
        if mark not in seen.marks:
            return not_seen("no_paper")
        counted = {name: int(seen.marks[name]) for name in ("orders", mark)}
        return _verdict(not counted[mark], mark, (counted,))

    return judged


# ---- the database ----------------------------------------------------------------------------------------------------

TILLS = {"delivery_orders": ("pos_revision", "pos_reference", "pos_total"), "delivery_actions": ("withdraw",)}


def own_columns(seen: Seen) -> Judged:
    """The till writes only its own columns, and inserts only outbox rows."""
    wrong = [note for note in seen.notes if not _may(note)]
    return Judged(Verdict.FAIL, "foreign_write", _places(wrong)) if wrong else _passed(seen)


def _may(note: Note) -> bool:
    if note.what == "delete":
        return True  # another criterion judges it
    if note.what == "insert":
        return note.table == "delivery_actions"
    return note.column in TILLS.get(note.table, ())


def deletes_nothing(seen: Seen) -> Judged:
    """The till deletes no rows, because a deleted row cannot be checked or sent any more."""
    gone = [note for note in seen.notes if note.what == "delete"]
    return Judged(Verdict.FAIL, "deleted", _places(gone)) if gone else _passed(seen)


def _passed(seen: Seen) -> Judged:
    return Judged(Verdict.PASS) if seen.notes else not_seen("nothing_to_see")


def _places(notes: list[Note]) -> tuple[Fact, ...]:
    places = sorted({(note.table, note.column) for note in notes})
    return tuple({"table": table} | ({"column": column} if column else {}) for table, column in places)


def waits_its_turn(seen: Seen) -> Judged:
    """The till waits while another program writes, and does not fail with an error."""
    if "waited" not in seen.marks:
        return not_seen("server_waits")
    if seen.marks.get("waited"):
        return Judged(Verdict.PASS)
    return Judged(Verdict.FAIL, "turned_away") if seen.marks.get("gave_up", 0) > 1 else not_seen("not_waiting_long")


def short_lock(seen: Seen) -> Judged:
    """The till holds its locks only for a short time."""
    if "longest_lock_s" not in seen.marks:
        return not_seen("locks_hidden")
    held = seen.marks["longest_lock_s"]
    return _verdict(held <= LONGEST_LOCK_S, "lock", ({"longest_lock_s": round(held, 1)},))
