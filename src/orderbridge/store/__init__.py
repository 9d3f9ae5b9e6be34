"""The database: the tables that the POS shares, and all statements that read or write them.

access           database group_commit workers failures rows
dialects         dialects
tables           tables own_tables ddl schema write_guards inspection
orders           orders order_times quarantine reference foods
outbox           actions unfinished closures
accounts         accounts
problems         problem_rows problem_queries overview
keeping data     retention backup high_water journal
several daemons  leader
"""
