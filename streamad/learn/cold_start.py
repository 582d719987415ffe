"""The cold start: what verdicts say, and how far it is, while a model's first training has not come. Pure."""

from __future__ import annotations

__all__ = ["cold_start_text"]


def cold_start_text(n_kept: int, n_wanted: int, *, is_training: bool, unit: str = "") -> str:
    """Return how far a first model is: "i of n" sequences (``unit`` may say so), i at most n.

    Examples:
        >>> cold_start_text(12, 200, is_training=False)
        '12 of 200'
        >>> cold_start_text(230, 200, is_training=True)
        '200 of 200, the first model is being trained'
        >>> cold_start_text(230, 200, is_training=True, unit="sequences")
        '200 of 200 sequences, the first model is being trained'
    """
    text = f"{min(n_kept, n_wanted)} of {n_wanted} {unit}".rstrip()
    return f"{text}, the first model is being trained" if is_training else text
