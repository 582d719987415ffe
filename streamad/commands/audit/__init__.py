"""``streamad audit``."""
