"""Baselines in the manner of scikit-learn: fitted at once."""
