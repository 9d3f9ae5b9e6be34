"""The marketplace's interface: requests, sessions, and the meaning of answers (docs/interface.md)."""
