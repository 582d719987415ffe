"""Whether a plant differs from a model's training: far too many alerts, and the channels that moved."""
