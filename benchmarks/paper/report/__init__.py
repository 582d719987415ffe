"""docs/model/paper.md and its tables, from stored results."""
