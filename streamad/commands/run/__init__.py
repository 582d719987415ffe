"""``streamad run``."""
