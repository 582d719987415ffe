"""What a person decides about the versions of a model, for the commands and the page."""
