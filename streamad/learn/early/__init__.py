"""The early part of a model: looks at running sequences, fitted and calibrated."""
