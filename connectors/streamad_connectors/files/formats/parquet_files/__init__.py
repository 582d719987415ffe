"""Parquet: rows as records and by column, read by a process of its own."""
