"""The parts of an attribution: the normal band, windows scored with replacements, segments of time, and words."""
