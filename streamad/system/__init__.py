"""Clocks, files, locks, threads and tasks: code that knows nothing of monitoring."""
