"""What NeuTraL AD is compared with: the paper's baselines and the peers of today, each behind the ``Detector`` port."""
