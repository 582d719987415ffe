"""The feature spaces of the ensemble: maps from scaled windows to features."""
