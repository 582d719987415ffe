"""The trainings of a running model: triggers, requests, the training process and its status."""
