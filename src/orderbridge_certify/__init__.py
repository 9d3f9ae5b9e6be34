"""`orderbridge certify`: plays what a till meets in its life, looks at what it writes, and says whether it is safe.

Judging is pure (judging.py, over what seen.py names), the scenarios are one table (scenarios.py), what the till writes
is noted by triggers (notes.py), what a till prints that certify has started is read by started.py, and play.py is the
only one that waits.
"""
