"""Which words and numbers, as labels of sequences, mean normal and which anomalous."""

from __future__ import annotations

import math

_PAIRS = (
    ("normal", "anomalous"),
    ("normal", "anomaly"),
    ("normal", "abnormal"),
    ("good", "bad"),
    ("ok", "nok"),
    ("io", "nio"),
    ("pass", "fail"),
    ("healthy", "faulty"),
)
"""Words that labels are made of, in any case and with any punctuation: "i.O." is io."""
_NORMAL = frozenset(normal for normal, _ in _PAIRS)
_ANOMALOUS = frozenset(anomalous for _, anomalous in _PAIRS)
WORDS_TEXT = ", ".join("/".join(pair) for pair in _PAIRS)
"""The pairs of words for people."""


def word_means(label: str) -> bool | None:
    """Return whether ``label`` means anomalous by itself, None if it says neither."""
    if (plain := plain_label(label)) in {"0", "1"}:
        return plain == "1"
    word = "".join(character for character in label.casefold() if character.isalnum())
    return word in _ANOMALOUS if word in _NORMAL or word in _ANOMALOUS else None


def is_number(label: str) -> bool:
    """Return whether ``label`` is a finite number."""
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False


def plain_label(label: str) -> str:
    """Return ``label`` with 1.0 as 1."""
    label = label.strip()
    if not is_number(label):
        return label
    number = float(label)
    return str(int(number)) if number.is_integer() else str(number)
