"""The config, ``plant.yaml``: its sections, its fields, its file."""
