"""The table of batches (``sequences.table``): its rows, and which of them a sample belongs to."""
