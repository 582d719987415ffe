"""Recordings in object stores: each object is copied whole while it is read, by the readers of local files."""
