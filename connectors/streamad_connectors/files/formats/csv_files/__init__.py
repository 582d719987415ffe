"""CSV: its lines, header, cells and rows."""
