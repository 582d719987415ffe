"""The figures of a run: its report, the labels they are compared with, what the calibration certifies, and plots."""
