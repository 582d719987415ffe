"""Columns of tables to samples, as the decoder reads their rows."""
