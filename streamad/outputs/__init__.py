"""What the page, notices and commands read of a plant's outputs and versions, and write of operators' decisions."""
