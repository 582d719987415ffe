"""Reads a plant's committed outputs, marks and versions, and writes operators' decisions; knows no command line."""
