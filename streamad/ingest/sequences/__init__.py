"""Sequences of a partition: its streams and clock, where a sequence begins and ends, late samples, progress."""
