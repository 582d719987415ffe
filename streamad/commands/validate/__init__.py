"""``streamad validate``: an acceptance protocol: expected beside found, for a person to sign."""
