"""The client of a Schema Registry, and what waits for its schemas."""
