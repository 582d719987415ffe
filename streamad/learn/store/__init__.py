"""The inlier store: sequences kept for training."""
