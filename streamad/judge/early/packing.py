"""Courses as bytes, for the messages and stores that hold the window of their sequence already.

Law (tests/unit/learn/early/test_stored_courses.py): a look at the unpacked course sees what one at the running sequence
saw, bit for bit.

Format: zlib of the number of points of the whole course and of those kept, G (uint32); the first column (float32 [C]);
the bits [C, G] of ``own``, and of where such a reading is not the window's value at that point; these readings
(float32). All is little-endian, by rows. Sampled evenly, nearly all readings are the window's.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from streamad.judge.early.course import Course
from streamad.types import BoolArray, FloatArray

_HEAD = struct.Struct("<II")
_VALUE = np.dtype("<f4")


def packed(course: Course, window: FloatArray) -> bytes:
    """Return ``course`` as bytes, beside the values [C, points] of its sequence's window."""
    values, own = course.values.astype(_VALUE), course.own
    differs = own & (values.view(np.uint32) != _aligned(window, values.shape[1]).view(np.uint32))
    bits = (np.packbits(each).tobytes() for each in (own, differs))
    head = _HEAD.pack(len(course), values.shape[1])
    return zlib.compress(b"".join((head, values[:, :1].tobytes(), *bits, values[differs].tobytes())), 1)


def unpacked(content: bytes, window: FloatArray, most: int) -> Course:
    """Return the course of ``packed``, beside the same ``window``. Raises ValueError if it is none of ``most`` points.

    No more memory is taken than such a one needs, whatever ``content`` says.
    """
    n_channels = len(window)
    limit = _HEAD.size + 4 * n_channels * (most + 1) + 2 * -(-n_channels * most // 8) + 1
    try:
        reader = zlib.decompressobj()
        raw = reader.decompress(content, limit)
        whole, n = _HEAD.unpack_from(raw)
    except (zlib.error, struct.error) as error:
        raise ValueError(f"the course is damaged ({error})") from None
    column, mask = 4 * n_channels * min(n, 1), -(-n_channels * n // 8)
    at = _HEAD.size + column
    if not reader.eof or n != min(whole, most) or len(raw) < at + 2 * mask:
        raise ValueError(f"the course is cut, or not kept up to {most} points")
    own, differs = (_bits(raw, begin, (n_channels, n)) for begin in (at, at + mask))
    readings = raw[at + 2 * mask :]
    if len(readings) != 4 * differs.sum():
        raise ValueError("the course holds more or fewer readings than it says")
    values = _aligned(window, n)
    values[differs] = np.frombuffer(readings, _VALUE)
    if n:
        values[:, 0] = np.frombuffer(raw, _VALUE, n_channels, _HEAD.size)
    if not np.isfinite(values[own]).all() or np.isinf(values[:, :1]).any():
        raise ValueError("the course has readings that are none")
    newest = np.maximum.accumulate(np.where(own, np.arange(n), 0), axis=1)
    return Course(np.take_along_axis(values, newest, axis=1), own, whole)


def _bits(raw: bytes, begin: int, shape: tuple[int, int]) -> BoolArray:
    n = shape[0] * shape[1]
    return np.unpackbits(np.frombuffer(raw, np.uint8, -(-n // 8), begin), count=n).astype(bool).reshape(shape)


def _aligned(window: FloatArray, n: int) -> FloatArray:
    """Return the first ``n`` points of ``window`` as new values [C, n], 0 beyond its end."""
    values = np.zeros((len(window), n), np.float32)
    kept = window[:, :n]
    values[:, : kept.shape[1]] = kept
    return values
