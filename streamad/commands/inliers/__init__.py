"""``streamad inliers``."""
