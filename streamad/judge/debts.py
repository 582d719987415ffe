"""Attributions that are owed: what is kept of an alert until its attribution is made, and how much of it at most."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import msgspec
import numpy as np

from streamad.messages import Alert
from streamad.partition_progress import Debt
from streamad.types import FloatArray, Window

MOST_DEBTS = 256
"""Debts of a partition at most."""
MOST_DEBT_BYTES = 32_000_000
"""Bytes of the debts of a partition at most, and of one window before it is packed."""
_KEY_BYTES = 200  # of an item's key and framing
_FLOATS = np.dtype("<f4")


class LostWindowError(Exception):
    """Raised for a debt whose window or terms cannot be read any more."""


def debt_of(alert: Alert, terms: FloatArray, window: Window) -> Debt:
    """Return what must be kept of ``alert``, its terms [K] and its judged window."""
    n_channels, n_points = window.values.shape
    return Debt(
        alert=alert,
        terms=terms.astype(_FLOATS).tobytes(),
        shape=(n_channels, n_points),
        length=window.length,
        window=zlib.compress(window.values.astype(_FLOATS).tobytes(), 1),
    )


def terms_of(debt: Debt) -> FloatArray:
    """Return the terms float32 [K]. Raises LostWindowError."""
    if not debt.terms or len(debt.terms) % _FLOATS.itemsize:
        raise LostWindowError("its terms are damaged")
    return np.frombuffer(debt.terms, dtype=_FLOATS).astype(np.float32)


def window_of(debt: Debt) -> Window:
    """Return the judged window; at most ``MOST_DEBT_BYTES`` are unpacked. Raises LostWindowError."""
    if not debt.window:
        raise LostWindowError("its window is gone")
    n_channels, n_points = debt.shape
    n_bytes = n_channels * n_points * _FLOATS.itemsize
    if min(debt.shape) < 1 or not 1 <= debt.length <= n_points or n_bytes > MOST_DEBT_BYTES:
        raise LostWindowError("its window is damaged")
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(debt.window, n_bytes + 1)
    except zlib.error as error:
        raise LostWindowError("its window is damaged") from error
    if len(content) != n_bytes or not unpacking.eof:
        raise LostWindowError("its window is damaged")
    values = np.frombuffer(content, dtype=_FLOATS).astype(np.float32).reshape(debt.shape)
    return Window(values, debt.length)


class Ledger:
    """The debts of one partition, at most ``MOST_DEBTS`` and ``MOST_DEBT_BYTES`` of them.

    Those of a restored partition count too, however many they are. ``max_item_bytes`` is that of the committer.
    """

    def __init__(self, debts: Iterable[Debt] = (), max_item_bytes: int | None = None) -> None:
        self._max_item_bytes = max_item_bytes
        self._sizes = {debt.alert.alert_id: _size_of(debt) for debt in debts}

    def owe(self, alert: Alert, terms: FloatArray, window: Window) -> Debt | None:
        """Return a new debt, which counts from now on; None if there is no room for it."""
        if len(self._sizes) >= MOST_DEBTS or window.values.nbytes > MOST_DEBT_BYTES:
            return None
        debt = debt_of(alert, terms, window)
        size = _size_of(debt)
        if self._max_item_bytes is not None and size > self._max_item_bytes:
            return None
        if sum(self._sizes.values()) + size > MOST_DEBT_BYTES or alert.alert_id in self._sizes:
            return None
        self._sizes[alert.alert_id] = size
        return debt

    def paid(self, alert_id: str) -> None:
        """Count the debt no more."""
        self._sizes.pop(alert_id, None)


def _size_of(debt: Debt) -> int:
    return len(msgspec.msgpack.encode(debt)) + _KEY_BYTES
