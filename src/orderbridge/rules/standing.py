"""Where an outbox row stands between its INSERT and its end, and what may end it without a request.

A row has six final states, and their names say what they mean. The two states that are not final hide four different
things, and most of what is hard about the outbox hangs on telling them apart:

    standing       state      what has happened                                    may it have had its effect?
    WAITING        pending    nothing left, or each answer was 401 or 429          no
    RETRIED        pending    it had failed, and a person asked for it once more   perhaps: of the failed attempts
    ON_THE_WIRE    sending    a request has left, and has not ended yet            not known yet
    UNRESOLVED     sending    a request ended in a 5xx or without answer           perhaps

                      claim                     answered 401, 429; it never left
    INSERT -> WAITING ------> ON_THE_WIRE ------------------------------------> WAITING (in doubt: UNRESOLVED)
                                 |   ^
                                 |   | claim: its resend, when it is time
             5xx or no answer    v   |
                              UNRESOLVED ------> done, refused, failed: an answer, a poll or a status has shown it
              failed ------> RETRIED             by `actions retry`

A doubt that a request left stays, whatever later ones bring: a row that is in doubt and is answered 401 is UNRESOLVED
again, and so is a RETRIED one whose failed requests left a doubt, from its first new request on
(rules.retry.stands_after).

Why it matters. A row that may have had its effect must never be shown to the cashier as "not sent": that is a meal
cooked twice, or an order that is not cooked. So what simply ends a waiting row (too old, taken back, refused here) ends
a doubtful one as `failed, outcome_unknown`: look in the service's panel. Taking back works only on what waits; what is
unresolved goes on until something shows what became of it. A row on the wire is held, and nothing ends
it but its answer; whoever asks has made sure of that, for the table alone does not show it: a crash in between leaves
`sending`, an attempt without an end, and no caller who waits for it. At the next start such a row is UNRESOLVED
(jobs.outcome_writer).

A newer row that makes this one needless supersedes it whether it is doubtful or not: what the newer one does is what
counts in the end.

`ENDS` is all of this as a table. What is not in it does not end a row.

In memory (rules.queue) a row may be held, and then nothing is decided about it, whatever it was before:

    ON_THE_WIRE    its own coroutine has it: from being taken, before its note is written, until its outcome is on disk
    PUT_ASIDE      it is left alone until a time, or until a poll of its account is over: a till holds the row, the
                   database refuses what we write, an acknowledgement has its lane, a poll may show what became of it
    ENDING         its end is decided and not written yet; it ends no older row meanwhile, and stays ENDING when it is
                   put aside, because it may be decided anew when it comes back
    OVER           it is not in the queue any more

Such a row keeps its lane: none behind it may pass. A program that stops forgets these, and the table tells the rest.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum, auto

from orderbridge.model import ActionState, OutboxRow, Verdict


class Standing(Enum):
    """Where a row stands that has no verdict; the head of this file says what each means."""

    WAITING = auto()
    RETRIED = auto()
    ON_THE_WIRE = auto()
    UNRESOLVED = auto()
    PUT_ASIDE = auto()
    ENDING = auto()
    OVER = auto()

    @property
    def state(self) -> ActionState:
        """The word for it in the table."""
        return ActionState.PENDING if self in {Standing.WAITING, Standing.RETRIED} else ActionState.SENDING


class Cause(Enum):
    """Why a row ends without another request."""

    WITHDRAWN = auto()  # the POS wants it back
    EXPIRED = auto()  # its time is over
    SUPERSEDED = auto()  # a later row of its lane takes its place
    REFUSED = auto()  # it can never be right


_UNKNOWN = Verdict(ActionState.FAILED, "outcome_unknown")
_SUPERSEDED = Verdict(ActionState.SUPERSEDED, "superseded")

ENDS: Mapping[tuple[Standing, Cause], Verdict] = {
    (Standing.WAITING, Cause.WITHDRAWN): Verdict(ActionState.WITHDRAWN, "withdrawn"),
    (Standing.WAITING, Cause.EXPIRED): Verdict(ActionState.EXPIRED, "expired"),
    (Standing.WAITING, Cause.SUPERSEDED): _SUPERSEDED,
    (Standing.WAITING, Cause.REFUSED): Verdict(ActionState.REFUSED, "bad_arguments"),
    (Standing.RETRIED, Cause.WITHDRAWN): _UNKNOWN,
    (Standing.RETRIED, Cause.EXPIRED): _UNKNOWN,
    (Standing.RETRIED, Cause.SUPERSEDED): _SUPERSEDED,
    (Standing.RETRIED, Cause.REFUSED): _UNKNOWN,
    (Standing.UNRESOLVED, Cause.EXPIRED): _UNKNOWN,
    (Standing.UNRESOLVED, Cause.SUPERSEDED): _SUPERSEDED,
}


def standing_of(row: OutboxRow) -> Standing:
    """Where a row stands that is not on the wire. Only `actions retry` sets an expiry, of what had failed."""
    if row.state != ActionState.PENDING:
        return Standing.UNRESOLVED
    return Standing.WAITING if row.expires_utc is None else Standing.RETRIED


def end_by(row: OutboxRow, cause: Cause, code: str | None = None) -> Verdict | None:
    """How that ends a row; None: it does not. `code`: of a refusal."""
    end = ENDS.get((standing_of(row), cause))
    if cause is Cause.REFUSED and code is not None and end is not None and end.state == ActionState.REFUSED:
        return replace(end, code=code)
    return end
