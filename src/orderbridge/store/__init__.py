"""The database: the tables that the POS shares, and every statement that reads or writes them.

the seam         database group_commit workers failures rows
databases        dialects
the tables       tables own_tables ddl schema write_guards inspection
orders           orders order_times quarantine reference
the outbox       actions unfinished
accounts         accounts
what is wrong    problem_rows problem_queries overview
what is kept     retention backup high_water journal
several daemons  leader
"""
