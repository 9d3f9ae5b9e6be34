"""The commands on accounts in the database, and what the fleet adds to `status` and `check`."""
