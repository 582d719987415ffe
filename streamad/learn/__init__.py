"""Training, the model registry, and what goes into service."""
