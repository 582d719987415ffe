"""The example's batches, monitors and figures."""
