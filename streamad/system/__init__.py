"""The machine below: clocks, files, locks, threads and tasks; no word of monitoring."""
