"""``streamad init``."""
