"""The learning of a running monitor."""
