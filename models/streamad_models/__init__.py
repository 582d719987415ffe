"""Detectors: NeuTraL AD, and the scorer that serves its TorchScript artifact."""
