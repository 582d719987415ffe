"""Messages gone wrong: a seeded stream of valid messages, most of them damaged in one to three ways.

Damage is done to the bytes (flips, cuts, inserted and repeated pieces) and to the content before encoding (types
swapped, huge and special numbers, deep nesting, wrong shapes, renamed keys), so that both parsers and checks are met.
"""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

CHANNELS = ("temp", "pressure", "flow")
START_S = 1_772_352_930
"""Event times of valid messages lie in the hour after this (2026-03-01T08:15:30Z)."""

_TOKENS = [
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"null", b"true", b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1"),
    *(b"\x00", b"\xff", b"\\ud800", b"\\u0000", b'"end":true,', b'"stream":"",', b'"stream":"other",', b"9" * 400),
    *(b"\xef\xbb\xbf", b"\xc1", b"\xc0", b"\xcb\x7f\xf0\0\0\0\0\0\0", b"\xca\x7f\xc0\0\0", b"\xcf" + b"\xff" * 8),
    *(
        b"\xd4\x05a",
        b"\xd7\xff" + b"\x01" * 8,
        b"\xc7\x0c\xff" + b"\xff" * 12,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff",
    ),
    *(b"[" * 5_000, b"\x91" * 5_000, b'{"a":' * 5_000, b"\x81\xa1a" * 5_000),
]
_NUMBERS = [0, -1, 1, 2**31, 2**63 - 1, 2**64 - 1, -(2**63), 1e-320, 3.5e38, -3.5e38, 1e308, math.nan, math.inf]
_TEXTS = ["", " ", "x", "temp", "1.5", "-1", "nan", "inf", "1e999", "9" * 5_000, "s" * 300, "\x00", "\u2028", "é"]
_TIMES = ["2026-03-01T08:15:30Z", "2026-03-01T08:15:30", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]
_CONTAINERS = [[], {}, [[]], [None], [[1.0, 2.0, 3.0]], {"temp": 1.0}, {"": None}, {"temp": {"temp": 1}}, ["temp"]]
_STRANGE: list[Any] = [None, True, False, *_NUMBERS, *_TEXTS, *_TIMES, *_CONTAINERS]


def valid_message(rng: random.Random) -> dict[str, Any]:
    """Return the content of a valid message of the own format, single or chunked, over CHANNELS."""
    message: dict[str, Any] = {"stream": f"s{rng.randrange(4)}", "sequence": f"b{rng.randrange(6)}"}
    if rng.random() < 0.5:
        message["time"] = START_S + rng.randrange(3_600_000) / 1_000
        message["values"] = {name: rng.gauss(50, 10) for name in CHANNELS if rng.random() < 0.9}
    else:
        n_samples = rng.randrange(1, 9)
        start = START_S + rng.randrange(3_600)
        message["times"] = [start + i / 10 for i in range(n_samples)]
        message["values"] = [[rng.gauss(50, 10) for _ in CHANNELS] for _ in range(n_samples)]
    if rng.random() < 0.1:
        message["end"] = True
    return message


def mutated_messages(count: int, seed: int = 0) -> Iterator[bytes]:
    """Yield ``count`` messages, one in ten of them valid, the same ones for the same ``seed``."""
    rng = random.Random(seed)
    for _ in range(count):
        content: Any = valid_message(rng)
        if rng.random() < 0.1:
            yield _encoded(content, rng)
            continue
        yield damaged_message(content, rng)


def damaged_message(content: Any, rng: random.Random) -> bytes:
    """Return ``content``, which may be changed, encoded and damaged in one to three ways."""
    n_damages = rng.randrange(1, 4)
    n_content = rng.randrange(n_damages + 1)
    for _ in range(n_content):
        content = damaged_content(content, rng)
    value = _encoded(content, rng)
    for _ in range(n_damages - n_content):
        value = damaged_bytes(value, rng)
    return value


def damaged_content(content: Any, rng: random.Random) -> Any:
    """Return ``content``, which may be changed, with one damage."""
    return rng.choice(_CONTENT_DAMAGES)(content, rng)


def damaged_bytes(value: bytes, rng: random.Random) -> bytes:
    """Return ``value`` with one damage."""
    return rng.choice(_BYTE_DAMAGES)(value, rng)


def _encoded(content: Any, rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return msgspec.msgpack.encode(content)
    return json.dumps(content, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


# --- damage to the content ------------------------------------------------------------------------------------------


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key or index) in ``content``, not descending below the third level."""
    places, level = [], [content]
    for _ in range(3):
        below: list[Any] = []
        for container in level:
            keys = list(container) if isinstance(container, dict) else range(len(container))
            places += [(container, key) for key in keys]
            below += [container[key] for key in keys if isinstance(container[key], dict | list)]
        level = below
    return places


def _swap_value(content: Any, rng: random.Random) -> Any:
    container, key = rng.choice(_places(content) or [([None], 0)])
    container[key] = copy.deepcopy(rng.choice(_STRANGE))
    return content


def _drop(content: Any, rng: random.Random) -> Any:
    container, key = rng.choice(_places(content) or [([None], 0)])
    del container[key]
    return content


def _duplicate_or_add(content: Any, rng: random.Random) -> Any:
    container, key = rng.choice(_places(content) or [([None], 0)])
    if isinstance(container, list):
        container.insert(key, copy.deepcopy(container[key]))
    else:
        container[rng.choice(["unknown", "time", "times", "channels", "end", ""])] = copy.deepcopy(rng.choice(_STRANGE))
    return content


def _nest(content: Any, rng: random.Random) -> Any:
    container, key = rng.choice(_places(content) or [([None], 0)])
    nested = container[key]
    for _ in range(rng.choice([1, 2, 60])):
        nested = [nested] if rng.random() < 0.5 else {"a": nested}
    container[key] = nested
    return content


def _shuffle_times(content: Any, rng: random.Random) -> Any:
    times = content.get("times") if isinstance(content, dict) else None
    if isinstance(times, list):
        rng.shuffle(times)
    return content


def _wrap(content: Any, rng: random.Random) -> Any:
    return [content] * rng.choice([0, 1, 3])


_CONTENT_DAMAGES: list[Callable[[Any, random.Random], Any]] = [
    *(_swap_value, _swap_value, _swap_value, _drop, _duplicate_or_add, _nest, _shuffle_times, _wrap)
]


# --- damage to the bytes --------------------------------------------------------------------------------------------


def _flip(value: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(value)
    for _ in range(rng.choice([1, 1, 2, 8]) if value else 0):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _cut(value: bytes, rng: random.Random) -> bytes:
    return value[: rng.randrange(len(value) + 1)]


def _insert(value: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(value) + 1)
    return value[:place] + rng.choice(_TOKENS) + value[place:]


def _overwrite(value: bytes, rng: random.Random) -> bytes:
    place, token = rng.randrange(len(value) + 1), rng.choice(_TOKENS)
    return value[:place] + token + value[place + len(token) :]


def _repeat(value: bytes, rng: random.Random) -> bytes:
    start, end = sorted(rng.randrange(len(value) + 1) for _ in range(2))
    return value[:end] + value[start:]


def _noise(value: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(len(value) + 1))


_BYTE_DAMAGES = [_flip, _flip, _cut, _insert, _insert, _overwrite, _repeat, _noise]
