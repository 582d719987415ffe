"""A simulated fed-batch fermenter with process and sensor faults: recordings that look like a plant's, with the truth.

Model and magnitudes: docs/model/simulation.md. Needs numpy and scipy only.
"""
