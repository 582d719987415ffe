"""Baselines that are trained by gradient descent."""
