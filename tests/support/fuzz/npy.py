"""NumPy arrays whose headers say odd things: shapes, types, versions, order."""

from __future__ import annotations

import io
import random
import struct
from typing import Any

import numpy as np

_SHAPES = (
    "()",
    "(0,)",
    "(-1,)",
    "(1,)",
    "(2**62,)",
    "(10**12, 10**12)",
    "(3, 0, 5)",
    "(1.5,)",
    "'x'",
    "None",
    "(True,)",
    "((1,),)",
    "(99999999999,)",
)
_TYPES = (
    "'<f4'",
    "'<f8'",
    "'|O'",
    "'<U5'",
    "'|S3'",
    "'>i8'",
    "'<c16'",
    "'|b1'",
    "'<M8[us]'",
    "'|V8'",
    "'<f16'",
    "[('a', '<f4')]",
    "'zz'",
    "None",
    "'<U999999999'",
    "'<U0'",
)
_ARRAYS: tuple[Any, ...] = (
    *(np.float32(1), np.zeros(0), np.zeros((0, 2, 12), np.float32), np.full((16, 2, 12), np.nan), np.array(["a", "b"])),
    *(
        np.array([[1, 2], [3, 4]]),
        np.array([-1] * 16),
        np.array([2**62] * 16),
        np.array([b"\xff"]),
        np.array(["\x00x", "[/]"]),
    ),
    *(
        np.array([1j]),
        np.zeros(16, "M8[us]"),
        np.zeros(16, "M8"),
        np.array([np.inf] * 16),
        np.array(["x" * 5_000] * 2),
        np.zeros((16, 2, 12), bool),
    ),
    *(
        np.array([1e300] * 16),
        np.zeros((16, 3, 12)),
        np.zeros((1, 1, 1, 1)),
        np.arange(16).astype(np.uint64) + 2**63,
        np.zeros(16, [("a", "f4")]),
    ),
)


def odd_npy(content: bytes, rng: random.Random) -> bytes:
    """Return ``content`` with another header, or another array altogether."""
    if rng.random() < 0.5:
        result = io.BytesIO()
        np.save(result, rng.choice(_ARRAYS), allow_pickle=False)
        return result.getvalue()
    order = rng.choice(["False", "True", "1", "None"])
    header = f"{{'descr': {rng.choice(_TYPES)}, 'fortran_order': {order}, 'shape': {rng.choice(_SHAPES)}, }}"
    header = rng.choice([header] * 6 + [header + " " * 70_000, "{" * 300, "__import__('os')", ""]) + "\n"
    version = rng.choice([b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"])
    size = struct.pack("<H", min(len(header), 65_535)) if version[0] == 1 else struct.pack("<I", len(header))
    return b"\x93NUMPY" + version + size + header.encode() + content[128:]
