"""Decimals of Avro and Protobuf: bytes of any length, and how many of its digits stand behind the point."""

from __future__ import annotations

MAX_SCALE = 1_000
_FLOAT_BITS = 1_024


def decimal_of(value: bytes, power: int) -> int | float:
    """Return the whole number in ``value``, divided by ``power``; one that no float can be near is infinite.

    A whole number stays one. No text is ever made of thousands of digits: Python refuses that.
    """
    unscaled = int.from_bytes(value, "big", signed=True)
    try:
        if power > 1:
            return unscaled / power  # rounded once, as the text of the number would be
    except OverflowError:
        return float("inf") if unscaled > 0 else float("-inf")
    if unscaled.bit_length() > _FLOAT_BITS:
        return float("inf") if unscaled > 0 else float("-inf")
    return unscaled
