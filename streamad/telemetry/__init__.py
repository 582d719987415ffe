"""Logs, events and metrics of the monitor itself."""
