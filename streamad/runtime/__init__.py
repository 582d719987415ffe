"""The running monitor: source, intake, judging, commit."""
