"""The detector in Python: fit, score and explain arrays and data frames, and hand the same version to ``run``."""
