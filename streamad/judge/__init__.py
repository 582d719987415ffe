"""Windows to verdicts: scoring, calibration, alerts and why they were raised."""
