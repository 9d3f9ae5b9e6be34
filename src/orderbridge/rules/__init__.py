"""Pure decisions: no I/O, no clock of their own. What they return is carried out elsewhere.

orders come in   cooldown poll_ends tokens intake statuses lifecycle reimport
actions go out   queue standing outbox retry
what is wrong    problems health notify
people           day
"""
