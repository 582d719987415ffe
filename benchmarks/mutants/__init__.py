"""Realistic mistakes in the parts of streamad that are hardest to change, and the tests that notice each of them."""
