"""Is the plant still the plant: drift in the scores of accepted sequences."""
