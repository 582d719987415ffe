"""The file formats of recordings."""
