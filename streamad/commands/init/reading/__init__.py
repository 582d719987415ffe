"""Reads a sample: its beginning, the ends of its files, and how its files belong together."""
