"""The daemon's jobs. Each run of a job reads, decides and writes, and returns when to run again.

receiving orders   poll intake acknowledge journal_writer reconciler
sending actions    outbox outbox_reader executor outcome_writer lanes postponed
accounts           context account accounts_at_work timetable lists menu
problems           health_check open_problems daemon_problems problem_table alarms
maintenance        upkeep closures restore_check reimport audit learned
"""
