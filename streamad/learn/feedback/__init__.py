"""Feedback of operators, and control messages between workers."""
