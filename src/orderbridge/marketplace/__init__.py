"""The wire: what the service understands and what its answers mean (docs/interface.md). No database, no rules, no waiting."""
