"""Acceptance: what a plant expects of its monitor, what was found, and the protocol that a person can sign."""
