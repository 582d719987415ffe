"""The versions of a model: written, verified, promoted, loaded into a running monitor."""
