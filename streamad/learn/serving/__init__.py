"""The models of a run: swapped in as the registry names them, whoever has trained them."""
