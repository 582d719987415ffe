"""Judges recordings unit by unit (a partition each) into Parquet files: in this process, in several, or on Ray."""
