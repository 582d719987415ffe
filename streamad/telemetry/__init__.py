"""What the monitor says of itself: logs, events, metrics."""
