"""The state of one partition: its streams and its clock, its progress, its dead letters."""
