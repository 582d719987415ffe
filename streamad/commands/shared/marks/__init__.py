"""Operators' marks, as commands write them and tell of them."""
