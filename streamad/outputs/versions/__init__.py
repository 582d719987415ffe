"""A person's decisions about the versions of a model, for the commands and the page."""
