"""Records to samples, samples to sequences, sequences to windows."""
