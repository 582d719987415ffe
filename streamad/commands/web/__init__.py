"""``streamad web``: the page, and who may log in to it."""
