"""Settings of messages with registered schemas: formats, and the registry."""
