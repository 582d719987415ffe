"""The figures of a run: its report, the labels they are compared with, and what the calibration certifies."""
