"""``streamad topics``: which topics a plant needs, and what is wrong with them."""
