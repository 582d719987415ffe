"""The detectors that NeuTraL AD is compared with: the paper's baselines and today's peers, behind ``Detector``."""
