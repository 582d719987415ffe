"""The page: a reader of the plant's outputs with a view store of its own; it never touches a worker."""
