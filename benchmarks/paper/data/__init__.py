"""The recordings and tables of the study."""
