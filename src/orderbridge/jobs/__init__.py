"""The work, one tick at a time: read, decide, write.

A tick that is called again says when. What a poll has done is counted in `acknowledge.Polled`, which the metrics read; what
a cycle of the outbox and the sweep count, the tests and the log do.

orders come in   poll intake acknowledge journal_writer reconciler
actions go out   outbox outbox_reader executor outcome_writer lanes postponed
accounts         context account accounts_at_work timetable lists
what is wrong    health_check open_problems daemon_problems problem_table
who is told      alarms
now and then     upkeep restore_check reimport
"""
