"""Boundaries in messages: the states, words and tags that say where sequences begin and end."""
