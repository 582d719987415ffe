"""The status of a worker as messages: taken from the pipeline, and written beside it."""
