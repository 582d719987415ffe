"""``streamad check``."""
