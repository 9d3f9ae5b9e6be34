"""Judges promises 4 and 6: each verdict follows from the requests and their answers (docs/design.md, Behaviour)."""

import sqlite3
from collections import Counter, defaultdict
from typing import Any

from tests.jobs.shop import FINAL
from tests.sim.judge import CLAIM_S, NOT_OURS, Judge, one_menu, past_its_time, time_of
from tests.sim.line import FOOD_OPERATIONS, ORDER_OPERATIONS, RESTAURANT_OPERATIONS, TARGET, Call

from orderbridge.rules.lifecycle import CANCELED
from orderbridge.rules.retry import MAX_RESENDS

PROVED_BY = {"accept": {2, 16}, "on_the_way": {16}, "complete": {5}, "cancel": {6}}
UNDONE = {"accept": {1}, "on_the_way": {2}, "complete": {16}, "cancel": {1, 2, 16}}  # proves that it was not done
RESTAURANT_TARGET = {"open_restaurant": "Open", "close_restaurant": "Closed"}
SUPERSEDED_BY_CANCEL, ENDING = {"accept", "on_the_way"}, {"complete", "cancel"}
EARLY_S, PROMPT_S = 0.1, 1.0  # from finished_utc to the log line
SHAKY_S = 30.0  # from a verdict to its log line, if other rows of its batch fail
WORDS = {
    "URL hatalı": "bad_url_id",
    "sipariş bulunamadı": "order_not_found",
    "ürün bulunamadı": "food_not_found",
    "restoran bulunamadı": "restaurant_not_found",
    "eksik alan": "missing_field",
}
NO_ATTEMPT = {"unauthorized", "rate_limited", "not_sent"}


class Verdicts(Judge):
    """A row's end and its known_by. ColumnsAreRight judges the effect on its order."""

    promise = "6"

    def __init__(self) -> None:
        self._polls: dict[str, list[Call]] = defaultdict(list)
        self._crashes: list[float] = []
        self._asked: dict[str, list[Call]] = defaultdict(list)  # by restaurant: reads of its status
        self._menus: dict[str, list[Call]] = defaultdict(list)
        self._logged: dict[int, float] = {}  # by row: when its end was last logged

    def leaving(self, call: Call) -> None:
        if call.row is not None:
            self._check_sending(call)

    def ended(self, call: Call) -> None:
        if call.outcome == "ok" and call.operation == "get_restaurant_status":
            self._asked[call.argument].append(call)
        elif call.outcome == "ok" and call.operation in {"get_current", "get_foods"} and call.whole:
            (self._polls if call.operation == "get_current" else self._menus)[call.account].append(call)
        if call.row is not None and call.whole and call.reached is not None:
            self._check_arguments(call)
        if call.reached is not None and call.reached.error in {"eksik alan", "URL hatalı"} and call.argument:
            self.broken(f"#{call.number} {call.operation} is malformed: {call.reached.error}")

    def logged(self, _: str, event: str, facts: dict[str, Any], __: str) -> None:
        word = event.removeprefix("action.")
        if word == event or "id" not in facts:
            return
        if word in FINAL:
            self._logged[facts["id"]] = self.sim.now()
            self._check_end(facts["id"], word)
        elif word == "waits":
            self._check_waiting(facts["id"])

    def crashed(self) -> None:
        self._crashes.append(self.sim.now())

    def finish(self) -> None:
        for row in self.rows("SELECT * FROM delivery_actions"):
            if row["action"] == "dance":
                continue
            if row["id"] not in self._logged and self.sim.lives == 1:
                self.sim.violated("8", f"row {row['id']} is {row['state']} and the log does not say so")
            self._check_attempts(row)

    def _check_sending(self, call: Call) -> None:
        """A restaurant's status is read before a repeat. Nothing that a list showed done or cancelled is sent."""
        before = self.sim.of_row[call.row or 0][:-1]
        is_written = not self.sim.plan.broken_disk and not self.sim.plan.refusing
        if call.operation in ORDER_OPERATIONS and is_written:
            polls = self._qualified(before)
            done = PROVED_BY[call.operation]
            if self.sim.spent.get(call.row or 0) == len(before):  # retried by a person: a list since its end counts
                over = self._logged.get(call.row or 0, 0.0)
                polls, done = [one for one in polls[-1:] if one.left_at >= over], set()
            for poll in polls:
                is_stored = not any(poll.ended_at <= at < poll.ended_at + CLAIM_S for at in self._crashes)
                known = is_stored and poll.ended_at < call.left_at - CLAIM_S
                shown = poll.documents[call.argument].status if call.argument in poll.documents else None
                if known and shown in {CANCELED, *done}:
                    self.broken(f"#{call.number} is sent again, and #{poll.number} had shown its order in {shown}")
        if call.operation not in RESTAURANT_OPERATIONS or not before or before[-1].outcome != "unknown":
            return
        asked = [c for c in self.sim.calls if c.operation == "get_restaurant_status" and c.argument == call.argument]
        looks = self._looks_at(call.argument, before[-1])
        if looks and looks[-1] is asked[-1] and looks[-1].data == RESTAURANT_TARGET[call.operation]:
            self.broken(f"#{call.number} is sent again, and #{looks[-1].number} had shown it done")
        if not any(c.left_at >= before[-1].ended_at for c in asked):
            self.broken(f"#{call.number} follows #{before[-1].number}, and the status was not read between")

    def _looks_at(self, restaurant: str, since: Call) -> list[Call]:
        return [look for look in self._asked[restaurant] if look.left_at >= since.ended_at]

    def _check_arguments(self, call: Call) -> None:
        row = self.row(call.row)
        body = call.reached.body if call.reached else None
        for operation, column in (("accept", "preparing_time"), ("cancel", "reason_id")):
            if call.operation == operation and body != {column: row[column]}:
                self.broken(f"#{call.number} sends {body}, and row {row['id']} has {row[column]}")

    def _check_end(self, number: int, word: str) -> None:
        row = self.row(number)
        if row["state"] != word:
            is_retried = number in self.sim.spent and self.sim.now() - self.sim.till.written[number] < SHAKY_S
            if not is_retried:  # before the log of its batch was written
                self._wrong(row, f"and the log says {word}")
            return
        calls = self.sim.of_row[number]
        if word == "superseded":
            self._check_superseded(row)
        else:
            checks = {"done": self._check_done, "refused": self._check_refused, "failed": self._check_failed}
            checks.get(word, self._check_unsent)(row, calls)
        self._check_columns(row, calls)

    def _wrong(self, row: sqlite3.Row, why: str) -> None:
        what = f"row {row['id']} ({row['action']}) is {row['state']} ({row['error_code']}, {row['known_by']})"
        self.broken(f"{what}, {why}")

    def _in_doubt(self, row: sqlite3.Row, calls: list[Call]) -> bool:
        """Whether a request had no definite answer, or a crash came before it was written."""
        return any(call.outcome in {"failed", "unknown"} for call in calls) or self.lost_an_answer(row["id"])

    def _qualified(self, calls: list[Call]) -> list[Call]:
        """The good polls after the row's last request. A list of one status, or a cut one, must have the order."""
        if not calls:
            return []
        last = calls[-1]
        owners = self.rows("SELECT account FROM delivery_orders WHERE payment_key = ?", last.argument)
        accounts = {last.account, *(row["account"] for row in owners)}  # the latter, if the former was removed
        polls = sorted((poll for one in accounts for poll in self._polls[one]), key=lambda poll: poll.left_at)
        since = [poll for poll in polls if poll.left_at >= last.ended_at]
        shown = [poll for poll in since if poll.delivered.get(last.argument) is not None]
        return [poll for poll in since if poll in shown or not (poll.argument or poll.is_cut)]

    def _check_done(self, row: sqlite3.Row, calls: list[Call]) -> None:
        if row["error_code"] == "already":
            self._check_already(row)
        elif row["error_code"] is not None:
            self._wrong(row, "done with an unknown code")
        elif row["known_by"] == "answer":
            last = calls[-1].outcome if calls else ""
            if last != "ok" or row["http_status"] != 200:
                self._wrong(row, f"and the last answer was {last}, HTTP {row['http_status']}")
        elif not self.lost_an_answer(row["id"]) and not (calls and self._is_proved(row, calls)):
            self._wrong(row, "and no later list, status or menu proves it")

    def _is_proved(self, row: sqlite3.Row, calls: list[Call]) -> bool:
        """Whether a list, status or menu that was read after the last request proves it (docs/design.md, Behaviour)."""
        if not self._in_doubt(row, calls):
            return False
        if row["known_by"] == "status" and row["food_id"] is not None:
            shown = self._shown_of_food(calls[-1])
            return shown == {"INACTIVE"} if row["action"] == "deactivate_food" else "ACTIVE" in shown
        if row["known_by"] == "status":
            looks = self._looks_at(row["restaurant_id"] or "", calls[-1])
            return bool(looks) and looks[-1].data == RESTAURANT_TARGET.get(row["action"])
        seen = [poll.delivered.get(row["payment_key"]) for poll in self._qualified(calls)]
        if row["known_by"] == "poll":
            return bool(seen) and seen[-1] in PROVED_BY.get(row["action"], ())
        active = {"complete": {16, 6}, "cancel": {1, 2, 16}}.get(row["action"])
        if active is None or self._other_end(row):
            return False
        return calls[-1].outcome == "no" and bool(seen) and seen[-1] not in active

    def _shown_of_food(self, last: Call) -> set[str]:
        """The food's statuses by the newest menu, or OK to another row of ours, after that request."""
        signs = [
            (menu.left_at, {status for food, status in menu.data if food == last.argument})
            for menu in self._menus[last.account]
        ]
        signs += [
            (call.ended_at, {"ACTIVE" if call.operation == "activate_food" else "INACTIVE"})
            for calls in self.sim.of_row.values()
            for call in calls
            if call.lane == last.lane and call.outcome == "ok"
        ]
        return max((one for one in signs if one[0] >= last.ended_at), default=(0.0, set()))[1]

    def _other_end(self, row: sqlite3.Row) -> bool:
        """Whether the order's complete may have succeeded beside this cancel, or the other way round."""
        other = "SELECT * FROM delivery_actions WHERE payment_key = ? AND action = ? AND state IN ('done', 'failed')"
        end = {"complete": "cancel", "cancel": "complete"}[row["action"]]
        return any(
            call.outcome in {"ok", "unknown", "failed"}
            for one in self.rows(other, row["payment_key"], end)
            for call in self.sim.of_row[one["id"]]
        )

    def _check_already(self, row: sqlite3.Row) -> None:
        if row["known_by"] == "answer":
            self._wrong(row, "and no request was sent")
        key, target = row["payment_key"], TARGET.get(row["action"])
        said = any(
            call.argument == key and call.outcome == "ok" and TARGET.get(call.operation) == target
            for calls in self.sim.of_row.values()
            for call in calls
        )
        if not said and not self._was_listed(key, target):
            self._wrong(row, "and the service has never shown that")

    def _was_listed(self, key: str, status: int | None) -> bool:
        return status is not None and any(
            poll.delivered.get(key) == status for polls in self._polls.values() for poll in polls
        )

    def _check_refused(self, row: sqlite3.Row, calls: list[Call]) -> None:
        heard = [call for call in calls if call.outcome == "no"]
        if row["error_code"] == "order_cancelled":
            ours = any(
                call.operation == "cancel" and call.argument == row["payment_key"] and call.outcome in {"ok", "no"}
                for call in self.sim.calls
            )
            if not ours and not self._was_listed(row["payment_key"], CANCELED):
                self._wrong(row, "and no list and no cancel of ours shows the order cancelled")
        elif heard:
            self._check_answered_no(row, calls)
        elif any(call.counts for call in calls):
            self._wrong(row, "and no answer refused it")
        elif not self._is_refused_here(row, row["error_code"]):
            self._wrong(row, "and its error_code is not true")

    def _check_answered_no(self, row: sqlite3.Row, calls: list[Call]) -> None:
        last = calls[-1]
        if last.outcome != "no" or row["http_status"] != last.status:
            self._wrong(row, f"and the last answer was {last.outcome}, HTTP {last.status}")
        if row["error_code"] != _code_of(last):
            self._wrong(row, f"and the service said {_code_of(last)}")
        doubt = any(call.outcome in {"failed", "unknown"} for call in calls[:-1])
        if doubt and row["action"] not in ORDER_OPERATIONS and _code_of(last) == "refused":
            self._wrong(row, "by an unknown error, after an unknown outcome")
        if doubt and row["action"] in ORDER_OPERATIONS:
            seen = [poll.delivered.get(row["payment_key"]) for poll in self._qualified(calls)]
            if not seen or seen[-1] is None or seen[-1] in PROVED_BY[row["action"]]:
                self._wrong(row, f"after an unknown outcome, and the last list showed {seen[-1:]}")

    def _is_refused_here(self, row: sqlite3.Row, code: str) -> bool:
        order = self.order(row["payment_key"])
        known = set(self.sim.plan.accounts) - self.sim.taken_out
        match code:
            case "order_unknown":
                return row["action"] in ORDER_OPERATIONS and order is None
            case "order_completed":
                return order is not None and order["service_status_id"] == 5 and row["action"] != "complete"
            case "courier_not_restaurant":
                return row["action"] == "on_the_way" and order is not None and order["courier_type"] in NOT_OURS
            case "restaurant_unknown":
                reaching = [a for a in self.sim.world.scenery.accounts if a.name in known]
                return not any(row["restaurant_id"] in a.restaurant_ids for a in reaching)
            case "account_needed":
                nowhere = row["action"] in FOOD_OPERATIONS and not row["restaurant_id"] and row["account"] not in known
                return nowhere and (row["account"] is not None or len(self.sim.plan.accounts) > 1)
        return code == "bad_arguments" and row["id"] in self.sim.till.wrong

    def _check_failed(self, row: sqlite3.Row, calls: list[Call]) -> None:
        counted = self._counted(row)
        used_up = counted > MAX_RESENDS or self.lost_an_answer(row["id"])
        is_orders = row["action"] in ORDER_OPERATIONS
        refused = bool(calls) and calls[-1].outcome == "no"
        refused = refused and bool(self._qualified(calls) if is_orders else _code_of(calls[-1]) == "refused")
        over = past_its_time(row, time_of(row["finished_utc"])) >= 0 or bool(row["withdraw"] and row["expires_utc"])
        codes = ("order_unknown", "order_completed", "courier_not_restaurant", "restaurant_unknown", "account_needed")
        over = over or bool(row["expires_utc"] and any(self._is_refused_here(row, code) for code in codes))
        if row["error_code"] not in {"outcome_unknown", "service_error"} or not self._in_doubt(row, calls):
            self._wrong(row, "and no request had an unknown outcome")
        elif not (used_up or over or refused):
            self._wrong(row, f"after only {counted} requests")
        elif row["error_code"] == "service_error" and not used_up:
            self._wrong(row, "before its resends are used up")
        unknown = any(call.outcome == "unknown" for call in calls)
        undone = row["action"] not in FOOD_OPERATIONS and self._shown_not_done(row, calls)
        if row["error_code"] == "service_error" and unknown and not undone:
            self._wrong(row, "and a request got no answer")
        if row["error_code"] == "outcome_unknown" and row["known_by"] == "poll" and undone and not refused:
            self._wrong(row, "and the last list shows that it was not done")
        is_spent = used_up and not (over or refused or self.lost_an_answer(row["id"]))
        is_known = not unknown if row["action"] in FOOD_OPERATIONS else undone
        if is_spent and is_known and row["error_code"] != "service_error" and row["action"] not in ORDER_OPERATIONS:
            self._wrong(row, "and only errors were answered, or its status shows that it was not done")
        if refused and row["known_by"] == "poll" and row["action"] in ENDING and self._is_missing(row, calls):
            self._wrong(row, "and the last list, which lacks its order, proves it")

    def _is_missing(self, row: sqlite3.Row, calls: list[Call]) -> bool:
        """Whether the last list lacks the order, which no other action of ours has ended."""
        poll = self._qualified(calls)[-1]
        order = self.order(row["payment_key"])
        ours = "SELECT 1 FROM delivery_actions WHERE payment_key = ? AND id <> ? AND action IN ('complete', 'cancel')"
        could_end = row["action"] == "cancel" or order["service_status_id"] == 16
        could_end = could_end and not self.rows(ours, row["payment_key"], row["id"])
        is_shown = poll.bad or poll.delivered.get(row["payment_key"]) is not None
        return could_end and not is_shown and not self.lost_an_answer(row["id"])

    def _shown_not_done(self, row: sqlite3.Row, calls: list[Call]) -> bool:
        if row["restaurant_id"] is not None:
            return bool(calls and self._looks_at(row["restaurant_id"], calls[-1]))
        seen = [poll.delivered.get(row["payment_key"]) for poll in self._qualified(calls)][-1:]
        if seen == [None] and row["action"] in SUPERSEDED_BY_CANCEL:  # it is as it was when it was acknowledged
            seen = [self.order(row["payment_key"])["acknowledged_status_id"]]
        needs_payment = self.sim.settings.marketplace.needs_payment_status_id  # None: its status proves nothing
        is_active = row["action"] == "cancel" and needs_payment is not None and seen == [needs_payment]
        return is_active or (bool(seen) and seen[0] in UNDONE[row["action"]])

    def _check_unsent(self, row: sqlite3.Row, calls: list[Call]) -> None:
        """Expired or withdrawn: no request left, except ones that were answered 401 or 429."""
        sent = [call for call in calls if call.counts]
        if sent:
            self._wrong(row, f"and #{sent[0].number} was sent ({sent[0].outcome})")
        if row["state"] == "withdrawn" and not row["withdraw"]:
            self._wrong(row, "and withdraw is 0")
        if row["state"] != "expired" or self.jumped_since_written(row["id"]):
            return
        if (late := past_its_time(row, time_of(row["finished_utc"]))) < 0:
            self._wrong(row, f"{-late:.0f} s before its time")

    def _check_superseded(self, row: sqlite3.Row) -> None:
        if row["action"] in SUPERSEDED_BY_CANCEL:
            later = "payment_key = ? AND action = 'cancel'", row["payment_key"]
        elif row["action"] in RESTAURANT_OPERATIONS:
            later = "restaurant_id = ? AND action LIKE '%_restaurant'", row["restaurant_id"]
        else:
            later = "food_id = ?", row["food_id"] if row["action"] in FOOD_OPERATIONS else None
        found = self.rows(f"SELECT * FROM delivery_actions WHERE {later[0]} AND id > ?", later[1], row["id"])
        if not any(row["food_id"] is None or one_menu(self.sim, one, row) for one in found):
            self._wrong(row, "and no newer row supersedes it")

    def _check_columns(self, row: sqlite3.Row, calls: list[Call]) -> None:
        if (row["error_code"] is None) != (not row["error_text"]):
            self.sim.violated("4", f"row {row['id']} is {row['state']}, and its error_text is {row['error_text']!r}")
        if row["next_attempt_utc"] is not None or row["finished_utc"] is None:
            self._wrong(row, f"with finished_utc {row['finished_utc']} and next_attempt_utc {row['next_attempt_utc']}")
        elif not self.sim.jumped_since(self.sim.now() - SHAKY_S):
            age = self.seconds_since(row["finished_utc"])
            if not -EARLY_S < age < (SHAKY_S if self.sim.plan.slow_disk or self.sim.plan.broken_disk else PROMPT_S):
                self._wrong(row, f"and finished {age:.1f} s ago")
        if row["state"] not in {"done", "refused"} and row["known_by"] == "answer":
            self._wrong(row, "and no answer says so")
        self._check_count(row, calls)

    def _check_count(self, row: sqlite3.Row, calls: list[Call]) -> None:
        """`attempts`: requests that left and were neither answered 401 nor 429."""
        counted = self._counted(row)
        tried = self.rows("SELECT * FROM delivery_action_attempts WHERE action_id = ? AND spent = 0", row["id"])
        not_counted = {*NO_ATTEMPT, None} if self.sim.plan.refusing else NO_ATTEMPT  # an end that was refused
        lost = sum(one["error_code"] == "stopped_while_sending" or one["outcome"] is None for one in tried)
        if not row["attempts"] - lost <= counted <= row["attempts"] + lost:
            self._wrong(row, f"after {counted} requests, and its attempts are {row['attempts']}")
        if row["attempts"] != sum(attempt["outcome"] not in not_counted for attempt in tried):
            self._wrong(row, f"and its attempts are {row['attempts']} of {len(tried)} rows")

    def _counted(self, row: sqlite3.Row) -> int:
        return sum(call.counts for call in self.tries(row["id"]))

    def _check_attempts(self, row: sqlite3.Row) -> None:
        if self.lost_an_answer(row["id"]):
            return
        tried = self.rows("SELECT * FROM delivery_action_attempts WHERE action_id = ?", row["id"])
        came = Counter(call.status for call in self.sim.of_row[row["id"]] if call.counts)
        noted = Counter(attempt["http_status"] for attempt in tried if attempt["outcome"] not in NO_ATTEMPT)
        if came != noted:
            self._wrong(row, f"its answers were {dict(came)}, delivery_action_attempts has {dict(noted)}")

    def _check_waiting(self, number: int) -> None:
        row = self.row(number)
        calls = self.sim.of_row[number]
        state = "sending" if self._in_doubt(row, calls) else "pending"
        if row["state"] in {"pending", "sending"} and row["state"] != state:
            self._wrong(row, f"and should be {state}")
        if row["state"] == "pending" and row["next_attempt_utc"] is None:
            self._wrong(row, "and next_attempt_utc is empty")
        if not (row["error_code"] and row["error_text"]):
            self._wrong(row, "and error_code or error_text is empty")
        self._check_count(row, calls)


def _code_of(call: Call) -> str:
    """The error_code of a refusal; `refused`: an error that docs/interface.md does not name."""
    return WORDS.get(call.reached.error if call.reached and call.whole else "", "refused")
