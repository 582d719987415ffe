"""Recordings and outputs in files."""
