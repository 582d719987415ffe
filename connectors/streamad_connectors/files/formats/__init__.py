"""The file formats that recordings come in."""
