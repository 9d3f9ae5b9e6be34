"""`orderbridge certify`: plays what a POS meets in its life, checks what it writes, and reports whether it is safe.

Judging is pure (judging.py, over what seen.py names), the scenarios are one table (scenarios.py), what the till writes
is noted by triggers (notes.py), what a till prints that certify has started is read by setup.py, and play.py is the
only one that waits.
"""

from orderbridge.texts import SENTENCES

SENTENCES.add(__name__)
