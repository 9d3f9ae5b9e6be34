"""Judges the waits of promises 4 and 6 and of the login: no shorter and not much longer than docs/design.md says."""

import math
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from tests.jobs.shop import COOLDOWN_S
from tests.sim.bounds import LOOKED_UP_S, MINUTE, RETRY_WAITS_S, TRIES_A_MINUTE
from tests.sim.judge import CLAIM_S, Judge
from tests.sim.line import Call

from orderbridge.rules.retry import JITTER
from orderbridge.rules.tokens import LINE_WAITS, LOGIN_WAITS, REFUSAL_WAITS, RENEW_AHEAD, VALIDITY

LONGEST = 1 + JITTER  # as a multiple of a wait
LATE_S = 20.0  # a poll and its acknowledgement may hold the lane meanwhile
LATE_ON_A_SLOW_DISK_S = 60.0
QUIET_S = 1.5 * COOLDOWN_S  # without faults; the account's line no longer waits then
A_MOMENT_S = 0.05
SOON_S, RENEWED_WITHIN_S = 1.0, 5.0
ASKED_A_MINUTE = 30  # with the till's toggles and their resends
LISTS = {"get_current", "get_restaurants"}
LOOKED_AT = {"accept", "on_the_way"}


class Waits(Judge):
    """Between two requests of a row is the wait that the first one's answer asks for."""

    promise = "6"

    def __init__(self) -> None:
        self._recent: dict[tuple[str, str, str, str, int], list[float]] = defaultdict(list)

    def leaving(self, call: Call) -> None:
        if call.row is None:
            return
        before = self.tries(call.row)[:-1]
        if before and not self.sim.jumped_since(before[-1].left_at):
            self._compare(before, call)

    def _compare(self, before: list[Call], call: Call) -> None:
        last, waited = before[-1], self.sim.now() - before[-1].ended_at
        least, most = self._wait(before)
        is_unknown = last.life != call.life and self.lost_an_answer(call.row)
        if waited < least - A_MOMENT_S and not is_unknown:
            self.broken(f"#{call.number} sends row {call.row} {waited:.2f} s after #{last.number} ({last.outcome})")
        # A crash before the request leaves one attempt more, which counts, so that the wait is longer.
        (noted,) = self.rows("SELECT count(*) FROM delivery_action_attempts WHERE action_id = ?", call.row)[0]
        same = self.sim.life is not None and self.sim.life.alive and self.sim.life.number == last.life
        is_quiet = same and self.sim.disturbed.get(last.account, 0.0) <= last.left_at
        if most is None or not is_quiet or noted > len(before) + 1:
            return
        if waited > most + (LATE_ON_A_SLOW_DISK_S if self.sim.plan.slow_disk else LATE_S):
            self.sim.violated("4", f"#{call.number} sends row {call.row} only {waited:.0f} s after #{last.number}")

    def _wait(self, before: list[Call]) -> tuple[float, float | None]:
        """The least and the most seconds after the last of these requests; None: it depends on other things."""
        last = before[-1]
        after = RETRY_WAITS_S[min(max(sum(call.counts for call in before), 1), 3) - 1]
        match last.outcome:
            case "ok" | "no":
                return math.inf, None
            case "wait":
                return COOLDOWN_S, COOLDOWN_S
            case "failed":
                return after, after * LONGEST
            case "unknown" if last.operation in LOOKED_AT:
                return 0.0, LOOKED_UP_S
            case "unknown":
                return after, after * LONGEST
            case "unauthorized" if len(before) > 1 and self._is_repeat(before[-2], last):
                return REFUSAL_WAITS[0], None
        return 0.0, None

    def _is_repeat(self, first: Call, second: Call) -> bool:
        """Whether the repeat with a new token was refused, too, which counts as a refused login."""
        if not first.outcome == second.outcome == "unauthorized" or first.life != second.life:
            return False
        between = self.sim.calls[first.number : second.number - 1]
        logins = [call for call in between if call.operation == "login" and call.account == first.account]
        if [login.outcome for login in logins] != ["ok"] or first.token == second.token:
            return False
        return logins[0].left_at - first.ended_at < A_MOMENT_S and second.left_at - logins[0].ended_at < LATE_S / 4

    def ended(self, call: Call) -> None:
        most, line = ASKED_A_MINUTE, "a line that is well"
        if call.never_left:  # on a slow disk one more may have begun before the last one failed
            most, line = TRIES_A_MINUTE * (2 if self.sim.plan.slow_disk else 1), "a dead line"
        recent = self._recent[call.account, call.operation, call.argument, line, call.life]  # a restart begins anew
        recent.append(call.ended_at)
        while recent[0] < call.ended_at - MINUTE:
            recent.pop(0)
        if len(recent) > most:
            self.sim.violated("7", f"{call.operation} of {call.account} {len(recent)} times a minute on {line}")


class IsSentSoon(Judge):
    """A row is sent as soon as it exists and its lane is free."""

    promise = "4"

    def leaving(self, call: Call) -> None:
        if call.row is None or call.lane is None or len(self.sim.of_row[call.row]) > 1:
            return
        now, written = self.sim.now(), self.sim.till.written.get(call.row)
        if self.sim.plan.slow_disk or written is None or self.sim.jumped_since(written - QUIET_S):
            return
        if min(written, now) - self.sim.disturbed.get(call.account, 0.0) < QUIET_S or self._held_up(call, written):
            return
        # Orders hold lanes until they are stored; foods wait for restaurants. An account has one of two slots.
        lists = [one for one in self.sim.calls if one.operation in LISTS and one.account == call.account]
        busy = [one for one in self.sim.calls if one.held_lane == call.lane]
        if self.sim.settings.actions.max_in_flight <= 2:
            busy += [one for one in self.sim.calls if one.row is not None and one.account == call.account]
        free = max([written, self.sim.born, *(one.ended_at for one in (*lists, *busy))])
        if now - free > SOON_S:
            self.broken(f"#{call.number} sends row {call.row} {now - free:.1f} s after it could have")

    def _held_up(self, call: Call, written: float) -> bool:
        """Whether an earlier row held the lane, and ended without a request or by a list."""
        before = f"SELECT max(finished_utc) FROM delivery_actions WHERE {call.column} = ? AND id < ?"
        (ended,) = self.rows(before, call.argument, call.row)[0]
        return ended is not None and self.sim.now() - self.seconds_since(ended) > written


class TokensInTime(Judge):
    """One login at a time, and only if one is needed; an expired or refused token is not sent."""

    promise = "login"

    def __init__(self) -> None:
        self._token: dict[str, Call] = {}  # by account: the login of the current token, also of an earlier life
        self._texts: dict[str, str] = {}
        self._until: dict[str, tuple[datetime, datetime]] = {}  # when it came and when it expires
        self._needed: set[str] = set()  # accounts whose next login has a reason
        self._flying: dict[str, Call] = {}
        self._refused: dict[str, list[Call]] = defaultdict(list)
        self._failed: dict[str, list[Call]] = defaultdict(list)  # logins since the last good one: no answer, 5xx, 429
        self._over: dict[str, float] = {}  # by token: since when it is known to be refused
        self._denied: dict[tuple[str, str, str], Call] = {}  # by call: its last one that was answered 401
        self._good: set[str] = set()  # tokens that have served a call
        self._shut: dict[str, float] = {}  # by such a token: since when one was refused with it

    def leaving(self, call: Call) -> None:
        if call.operation == "login":
            self._check_login(call)
            return
        denied = self._denied.get((call.account, call.operation, call.argument))
        if denied is not None and denied.token == call.token and call.left_at - denied.ended_at < A_MOMENT_S:
            self.broken(f"#{call.number} repeats #{denied.number} with the token that was refused")
        if call.operation != "get_current" and call.left_at > self._shut.get(call.token, 1e12) + A_MOMENT_S:
            self.broken(f"#{call.number} is sent with a token that another call found refused")
        if self._has_jumped(call.account):
            return
        if call.token == self._texts.get(call.account):
            self._check_token(call)
        elif self._is_over(call):
            self.broken(f"#{call.number} is sent with a token that was refused before")

    def _is_over(self, call: Call) -> bool:
        """Whether a poll was refused with this token. A 401 of another call may concern only that call."""
        return self.sim.now() > self._over.get(call.token, 1e12) + A_MOMENT_S

    def _has_jumped(self, account: str) -> bool:
        """Whether our clock was set after this account's last login."""
        return self.sim.jumped_since(self._token[account].left_at if account in self._token else 0.0)

    def _check_login(self, call: Call) -> None:
        flying = self._flying.get(call.account)
        if flying is not None and not flying.ended and flying.life == call.life:
            self.broken(f"#{call.number} logs in while login #{flying.number} is on the wire")
        self._flying[call.account] = call
        refused = self._refused[call.account]
        if refused and refused[-1].life == call.life:
            waited = self.sim.now() - refused[-1].ended_at
            if waited < REFUSAL_WAITS[min(len(refused), len(REFUSAL_WAITS)) - 1]:
                self.broken(f"#{call.number} logs in {waited:.1f} s after {len(refused)} refusals")
        if failed := self._failed[call.account]:
            last, times = failed[-1], sum(one.outcome != "wait" for one in failed)
            waits = (COOLDOWN_S,) if last.outcome == "wait" else LOGIN_WAITS if last.ended == "answered" else LINE_WAITS
            if (waited := self.sim.now() - last.ended_at) < waits[min(times, len(waits)) - 1] - A_MOMENT_S:
                self.broken(f"#{call.number} logs in {waited:.1f} s after #{last.number} ({last.outcome})")
        if call.account in self._needed or call.account not in self._texts or self._has_jumped(call.account):
            return
        received, until = self._until[call.account]
        if self.sim.clock.now() < until - (until - received) / RENEW_AHEAD - timedelta(seconds=1):
            self.broken(f"#{call.number} logs in, and the token of #{self._token[call.account].number} is valid")

    def _check_token(self, call: Call) -> None:
        received, until = self._until[call.account]
        due = until - (until - received) / RENEW_AHEAD
        late = (self.sim.clock.now() - due).total_seconds()
        tried = self._flying.get(call.account)
        fresh = tried is not None and tried.life == call.life and self.sim.now() - tried.left_at < late + SOON_S
        calm = self.sim.now() - self.sim.disturbed.get(call.account, 0.0) > late + QUIET_S
        # A poll that is answered 401 costs its slot; its token may expire while its note is written. Any other request
        # is repeated, unless no login could leave.
        is_over, may_be = self.sim.clock.now() > until + timedelta(seconds=CLAIM_S), fresh or not calm
        if is_over and (call.operation == "get_current" or not may_be):
            self.broken(f"#{call.number} is sent with an expired token")
        if late > min(RENEWED_WITHIN_S, (until - received).total_seconds() / (2 * RENEW_AHEAD)) and not fresh and calm:
            self.broken(f"#{call.number} is sent {late:.0f} s after its token should have been renewed")
        if self._is_over(call):
            self.broken(f"#{call.number} is sent with a token that was refused before")

    def ended(self, call: Call) -> None:
        if call.operation == "login":
            self._login_ended(call)
            return
        key = call.account, call.operation, call.argument
        if call.outcome == "unauthorized":
            is_first, self._denied[key] = key not in self._denied, call
            if call.operation == "get_current":
                self._over.setdefault(call.token, self.sim.now())
            elif is_first and call.token in self._good:  # a call that is refused again may be refused alone
                self._shut.setdefault(call.token, self.sim.now())
            if call.token == self._texts.get(call.account):
                self._needed.add(call.account)
        elif call.outcome in {"ok", "no"}:
            self._refused[call.account].clear()
            self._denied.pop(key, None)
            self._good.add(call.token)
            self._shut.pop(call.token, None)
            self._over.pop(call.token, None)  # only the call was refused

    def _login_ended(self, call: Call) -> None:
        if call.outcome == "unauthorized":
            self._refused[call.account].append(call)
        elif call.outcome in {"failed", "unknown", "wait"}:
            self._failed[call.account].append(call)
        elif call.outcome == "ok":
            self._failed[call.account].clear()
        if call.outcome != "ok" or not call.whole or call.reached is None:
            # The next try has the same reason; a crash or a lost answer counts as no login.
            self._needed.add(call.account)
            return
        text = next(reversed([text for text, name in self.sim.tokens.items() if name == call.account]))
        self._texts[call.account], self._token[call.account] = text, call
        self._needed.discard(call.account)
        self._until[call.account] = self._known_end(text)

    def _known_end(self, text: str) -> tuple[datetime, datetime]:
        """The expiry that the daemon knows: the answer's, read in its zone, at most a day."""
        now = self.sim.clock.now()
        day = now + VALIDITY
        expires = self.sim.world.tokens[text].expires if text in self.sim.world.tokens else None
        if expires is None:
            return now, day
        said = expires.astimezone(ZoneInfo(self.sim.world.options.expiration_timezone)).replace(microsecond=0)
        until = said.replace(tzinfo=ZoneInfo("Europe/Istanbul")).astimezone(UTC)
        return now, min(until, day) if until > now else day

    def crashed(self) -> None:
        """A token that was not stored yet is lost."""
        self._refused.clear()
        lately = self.sim.now() - LATE_ON_A_SLOW_DISK_S
        self._needed |= {account for account, login in self._token.items() if login.ended_at > lately}

    def restarted(self) -> None:
        for known in (self._refused, self._failed, self._over, self._shut):  # only the stored token is still known
            known.clear()
        if self.sim.plan.broken_disk or self.sim.plan.locks:
            self._needed |= set(self._token)
        self._needed |= {account for account, (_, until) in self._until.items() if self.sim.clock.now() >= until}
