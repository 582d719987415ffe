"""The view store: what the outputs say, by sequence, in one SQLite file beside the page."""
