"""Pure decisions: no I/O, no clock of their own. What they return is carried out elsewhere.

orders come in   cooldown poll_ends tokens deliveries statuses lifecycle replay
actions go out   queue standing outbox_rows retry
what is wrong    problems health notify
people           business_day
"""
