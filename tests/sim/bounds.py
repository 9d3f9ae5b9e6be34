"""Limits of time in seconds, from the program's own constants.

A judge adds its own tolerance for a slow disk or a till that locks the file. What the documentation promises in numbers
is a number here, too (the cooldown, the acknowledgement's 10 s): if a constant is changed by mistake, its judge must
not change with it.
"""

from tests.jobs.shop import COOLDOWN_S, TIMEOUT_S
from tests.sim.plan import SLOWEST_S

from orderbridge.jobs.outbox_reader import IDLE_SHARE
from orderbridge.rules.poll_ends import longest_listening
from orderbridge.rules.retry import LOOK_WITHIN
from orderbridge.rules.tokens import LINE_WAITS

MINUTE = 60.0

ACKNOWLEDGE_WITHIN_S = 10.0  # of the answer, or it is dropped
ACKNOWLEDGE_TIMEOUT_S = 5.0
ACKNOWLEDGING_S = ACKNOWLEDGE_WITHIN_S + ACKNOWLEDGE_TIMEOUT_S  # a poll with its last acknowledgement
ACCEPT_VALID_MINUTES, VALID_MINUTES = 10, 120
RETRY_WAITS_S = (2.0, 10.0, 60.0)  # after the first, second and third 5xx

LATE_S = 3 * COOLDOWN_S  # without a good poll
UNANSWERED_S, SCHEDULED_S = 30.0, 5 * MINUTE  # until it is reported; of a scheduled order
SEVERE_S = 3 * MINUTE  # until an unanswered order is severe; an unfinished cancel counts as an answer until then
NOT_TAKEN_OVER_S, UNSEEN_S = 3 * MINUTE, 2 * MINUTE  # a new order, a cancellation
LOOKED_UP_S = LOOK_WITHIN * COOLDOWN_S  # until a list shows what became of a request
# Requests in a minute on a dead line: the first, those after the growing waits, and repeats after the longest wait.
TRIES_A_MINUTE = 1 + len(LINE_WAITS) + int((MINUTE - sum(LINE_WAITS)) // LINE_WAITS[-1])
UNREAD_S = IDLE_SHARE * 2 * SLOWEST_S  # new rows, on a slow disk, after two queries that brought none


def listening_s(accounts: int) -> float:
    """The longest time between two good polls that counts as listening, of accounts that are polled in turn."""
    return float(longest_listening(accounts, cooldown_s=COOLDOWN_S, timeout_s=TIMEOUT_S))
