"""``streamad simulate``."""
