"""Limits of time in seconds, from the program's own constants.

A judge adds its own tolerance for a slow disk or a till that locks the file. What docs/design.md promises in numbers is
a number here, too (the cooldown, the acknowledgement's 10 s): if a constant is changed by mistake, its judge must not
change with it.
"""

from tests.jobs.shop import COOLDOWN_S, TIMEOUT_S
from tests.sim.plan import SLOWEST_S

from orderbridge.config.keys import Alarms
from orderbridge.jobs.acknowledge import ACKNOWLEDGE_WITHIN_S as SENT_WITHIN_S
from orderbridge.jobs.outbox_reader import IDLE_SHARE
from orderbridge.rules.health import FIRST_STEPS, SCHEDULED_STEPS, late_after
from orderbridge.rules.poll_ends import longest_listening
from orderbridge.rules.retry import LOOK_WITHIN
from orderbridge.rules.tokens import LINE_WAITS

MINUTE = 60.0
ALARMS = Alarms()

ACKNOWLEDGE_WITHIN_S = 10.0  # of the answer, or it is dropped
ACKNOWLEDGE_TIMEOUT_S = 5.0
ACKNOWLEDGING_S = ACKNOWLEDGE_WITHIN_S + ACKNOWLEDGE_TIMEOUT_S  # a poll with its last acknowledgement
ACCEPT_VALID_MINUTES, VALID_MINUTES = 10, 120
RETRY_WAITS_S = (2.0, 10.0, 60.0)  # after the first, second and third 5xx

LATE_S = late_after(COOLDOWN_S).total_seconds()  # without a good poll
UNANSWERED_S = FIRST_STEPS[0].total_seconds()
SCHEDULED_S = SCHEDULED_STEPS[0].total_seconds()
CANCEL_ANSWERS_S = ALARMS.unanswered_minutes * MINUTE  # an unfinished cancel counts as an answer for this time
NOT_TAKEN_OVER_S = ALARMS.not_taken_over_minutes * MINUTE
LOOKED_UP_S = LOOK_WITHIN * COOLDOWN_S  # until a list shows what became of a request
UNSEEN_S = ALARMS.cancellation_unseen_minutes * MINUTE
LEFT_FOR_ACKNOWLEDGING_S = SENT_WITHIN_S
# Requests in a minute on a dead line: the first, those after the growing waits, and repeats after the longest wait.
TRIES_A_MINUTE = 1 + len(LINE_WAITS) + int((MINUTE - sum(LINE_WAITS)) // LINE_WAITS[-1])
UNREAD_S = IDLE_SHARE * 2 * SLOWEST_S  # new rows, on a slow disk, after two queries that brought none


def listening_s(accounts: int) -> float:
    """The longest time between two good polls that counts as listening, of accounts that are polled in turn."""
    return float(longest_listening(accounts, cooldown_s=COOLDOWN_S, timeout_s=TIMEOUT_S))
