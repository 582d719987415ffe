"""Operators' marks and requests: their place, the rules for them, tables of them, and writing them."""
