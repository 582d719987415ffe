"""Chunks of the own format with every kind of number, odd shapes, texts and damage, and what decoders make of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.ingest.forms import arrays
from streamad.settings.decode import ChannelSettings, DecodeSettings
from streamad.types import Record

NAMES = ("temp", "p", "flow")
CHANNELS = [ChannelSettings(name="temp"), ChannelSettings(name="p", missing=(-9999, 0)), ChannelSettings(name="flow")]
WRITTEN_US = 1_772_352_930_000_000
SETTINGS: tuple[tuple[DecodeSettings, str | None], ...] = (
    (DecodeSettings(), None),
    (DecodeSettings(format="json", time_unit="ns"), "sequence"),
    (DecodeSettings(time_unit="ms", max_samples_per_message=3), "site"),
    (DecodeSettings(time="relative"), None),
)
"""Settings with the field that chooses the model."""


def _words(text: str) -> list[str]:
    return text.split()


_SPACES = ("", "", "", "", " ", "\n", "\t", "\r\n ", "\x0b", "\xa0")
_NUMBERS = _words("""0 -0 0.0 -0.0 1 -1 7 0.1 -2.5 3.25e2 1E3 1e+2 1e-7 -9999 -9999.0 9007199254740993 -9007199254740993
    2147483648 9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809 18446744073709551615
    18446744073709551616 123456789012345678901234567890 1e19 1e37 1e38 1.1e38 3.4028234e38 3.4028235e38 3.4028236e38
    -3.5e38 1e39 1e76 1e77 1e155 1e200 1.7976931348623157e308 1.7976931348623159e308 1e309 -1e400 5e-324 2e-324 1e-400
    1.1754943508222875e-38 1.4e-45 7e-46 0.30000000000000004 2.2250738585072011e-308 8.5 81.25 1.23456789 16777217
    1.000000059604644775390625 0.50000002980232238769531249999999 6.02214076e23""")
_ODD = _words("""null null null NaN nan Infinity -Infinity true false "1.5" "" "x" [] [1] [1,2] {} {"a":1} 00 01 +1 1.
    .5 1e 1e+ 0x10 - -- 1_0 1,,2 \\u0031""")
_TIMES = _words("""1772352930 1772352930.25 1772352930.35 1772352931 1.77235293e9 0 -0 -0.0 1 1.5 1e3 7258118400
    7258118401 1772352930000 1772352930000000000 1772352930000000001 9223372036854775807 9223372036854775808
    18446744073709551616""")
_ODD_TIMES = _words("""null "2026-03-01T08:15:30.250Z" "1772352930" "x" true [1] [1772352930] {} -1 -1e-7 1e300 1e400
    NaN 1. """)
_IDS = _words(""""r" "B-1042" 7 0 -7 18446744073709551615 18446744073709551616 1042.0 1.5 true null "" "a\\u0041"
    "\\ud83d\\ude00" "\\ud800" "é" "日本" "[" "a[b[" "a\\tb" "x\\u0000y" [] {} "times" """)
_EXTRA = _words(""""site":"a" "site":null "note":"[" "note":[1,2] "note":{"a":[[1]]} "time":1772352930
    "values":[[1,2,3]] "times":[1772352930] "stream":"other" "end":false "é":1 "\\ud800":1 "":0 "st\\u0072eam":"s"
    "x":1e999""")


def number_chunks(n: int, seed: int = 0) -> Iterator[bytes]:
    """Yield ``n`` messages: about half are regular chunks of numbers, the others odd or damaged."""
    rng = random.Random(seed)
    for _ in range(n):
        yield _message(rng)


def _message(rng: random.Random) -> bytes:
    odd = rng.choice((0.0, 0.0, 0.0, 0.02, 0.1))
    n, width = rng.randint(1, 5), rng.choice((3, 3, 3, 3, 2, 1))
    names = [*NAMES]
    rng.shuffle(names)
    fields = [
        f'"stream":{_one(rng, _IDS[:3], _IDS, odd)}',
        f'"sequence":{_one(rng, _IDS[:3], _IDS, odd)}',
        f'"times":{_list(rng, [_one(rng, _steps(rng, row), _TIMES + _ODD_TIMES, odd) for row in range(n)], odd)}',
        f'"values":{_rows(rng, n, width, odd)}',
    ]
    if width < len(NAMES) or rng.random() < 0.2:
        listed = _list(rng, [f'"{name}"' for name in names[:width]], odd)
        fields.append(f'"channels":{_one(rng, [listed], _ODD, odd)}')
    if rng.random() < 0.4:
        fields.append(f'"end":{_one(rng, ["true", "false", "null"], _ODD, odd)}')
    if rng.random() < odd:
        fields.append(rng.choice(_EXTRA))
    if rng.random() < 0.3:
        rng.shuffle(fields)
    if rng.random() < odd:
        fields.remove(rng.choice(fields))
    text = "{" + _joined(rng, fields, odd) + "}"
    value = text.encode("utf-8", "surrogatepass")
    return _damaged(rng, value) if rng.random() < 2 * odd else value


def _steps(rng: random.Random, row: int) -> list[str]:
    return [str(1_772_352_930 + row), f"{1_772_352_930 + row / 4}", rng.choice(_TIMES[:5])]


def _rows(rng: random.Random, n: int, width: int, odd: float) -> str:
    usual = _NUMBERS if rng.random() < 0.3 else _NUMBERS[:16]
    rows = []
    for _ in range(n):
        own = width if rng.random() >= odd else rng.randint(0, 4)
        cells = [_one(rng, usual, _ODD, odd) for _ in range(own)]
        rows.append(_list(rng, cells, odd) if rng.random() >= odd else rng.choice((*_ODD, '"ab"')))
    if rng.random() < odd:
        rows.append(rng.choice(rows))
    return _list(rng, rows, odd)


def _list(rng: random.Random, items: Sequence[str], odd: float) -> str:
    return f"[{_joined(rng, items, odd)}]"


def _joined(rng: random.Random, items: Sequence[str], odd: float) -> str:
    spaces = _SPACES if rng.random() < odd else _SPACES[:8]
    return ",".join(f"{rng.choice(spaces)}{item}{rng.choice(spaces)}" for item in items)


def _one(rng: random.Random, usual: Sequence[str], others: Sequence[str], odd: float) -> str:
    return rng.choice(others if rng.random() < odd else usual)


def _damaged(rng: random.Random, value: bytes) -> bytes:
    """Return ``value`` with bytes changed, cut, doubled, or put before or behind it."""
    at, end = rng.randrange(len(value)), rng.randint(1, 20)
    depth = rng.choice((3, 500, 1_100))
    return rng.choice(
        (
            value[:at],
            value[:at] + bytes([rng.randrange(256)]) + value[at + 1 :],
            value[:at] + value[at + 1 :],
            value[: at + end] + value[at:],
            value + rng.choice((b" ", b"\n", b"\0", b"x", b"{}", b",", b"\xff", value)),
            rng.choice((b" ", b"\xef\xbb\xbf", b"\n", b"\0", b"[", b'"')) + value,
            value[:at] + b"[" * depth + b"]" * depth + value[at:],
        )
    )


def pairs() -> list[tuple[Decoder, Decoder]]:
    """Return for each of ``SETTINGS`` a decoder that reads numbers into arrays, and one without simdjson."""
    found, parser_type = [], arrays.parser_type
    for settings, route in SETTINGS:
        fast = Decoder(settings, CHANNELS, route)
        arrays.parser_type = None  # as if it were not installed
        try:
            found.append((fast, Decoder(settings, CHANNELS, route)))
        finally:
            arrays.parser_type = parser_type
    return found


def outcome(decoder: Decoder, value: bytes) -> Any:
    """Return all that comes of ``value``, arrays as their bytes; of an error its kind and text."""
    try:
        found = decoder.decode(Record(3, value, WRITTEN_US), None)
    except DecodeError as error:
        return error.kind, str(error)
    return [
        (
            block.stream, block.sequence, block.end, block.route, block.relative, block.times_us.tobytes(),
            block.values.shape, block.values.tobytes(), None if block.indexes is None else block.indexes.tolist(),
            None if block.bad is None else (block.bad.codes.tobytes(), dict(block.bad.first)),
        )
        for block in found.blocks
    ]  # fmt: skip
