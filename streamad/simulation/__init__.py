"""A simulated fed-batch fermenter with process and sensor faults: recordings like those of a plant, with labels.

Model and magnitudes: docs/model/simulation.md. Needs numpy and scipy only.
"""
