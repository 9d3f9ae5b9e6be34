"""The wire: what the service understands and what its answers mean (SPEC.md). No database, no rules, no waiting."""
