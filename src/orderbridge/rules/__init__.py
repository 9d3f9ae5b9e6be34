"""Pure decisions: no I/O, no clock of their own. What they return is carried out elsewhere.

orders come in   cooldown poll_ends tokens deliveries lifecycle
actions go out   queue outbox_rows retry
what is wrong    problems health
people           business_day
"""
