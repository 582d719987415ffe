"""Files that are still written: their lines as they come, across rotations."""
