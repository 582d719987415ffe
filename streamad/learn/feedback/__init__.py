"""Feedback of operators."""
