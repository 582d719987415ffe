"""``streamad models``."""
