"""Looks at running sequences: what they see, and what they say."""
