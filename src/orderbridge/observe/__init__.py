"""Logs, metrics, liveness and messages to systemd."""
