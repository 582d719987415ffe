"""CPU time of a chunk of 50 x 24 numbers from bytes to float32, by form and parser, and the fuzz of the law that it
gives the same samples and errors with and without simdjson.

"lists" is the typed decoder with its lists packed into an array, "arrays" is simdjson's way (``ArrayReader``),
"decoder" the whole of ``Decoder.decode``. The other forms are no formats of streamad. The cases take turns, and each
has its least time. Needs the extra simdjson.
Run: ``python benchmarks/speed/arrays.py [--fuzz 1000000 [--seed 0]] [--json]``.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from kafka_bench_plant import NAMES, SAMPLES, chunk, sequences  # noqa: E402

from streamad.ingest.decode import Decoder  # noqa: E402
from streamad.ingest.decode_values import ValueReader  # noqa: E402
from streamad.ingest.forms import arrays  # noqa: E402
from streamad.settings.decode import ChannelSettings, DecodeSettings  # noqa: E402
from streamad.types import Record  # noqa: E402
from tests.support.ingest.number_chunks import number_chunks, outcome, pairs  # noqa: E402

MESSAGES, TURNS = 500, 15


class Lists(msgspec.Struct):
    """A chunk as lists."""

    stream: str
    sequence: str
    times: list[float]
    values: list[list[float]]
    end: bool = False


class Packed(msgspec.Struct):
    """A chunk whose values are the bytes of float32, in JSON as base64."""

    stream: str
    sequence: str
    times: list[float]
    values: bytes
    end: bool = False


def cases(values: list[bytes]) -> dict[str, Callable[[], None]]:
    """Return what is measured, each over all of ``values``."""
    found = [msgspec.json.decode(value, type=Lists) for value in values]
    rows = ValueReader(len(NAMES))
    read = arrays.ArrayReader().read
    as_msgpack = [msgspec.msgpack.encode(each) for each in found]
    floats = [np.array(each.values, dtype=np.float32).tobytes() for each in found]
    packed = [{**msgspec.structs.asdict(each), "values": own} for each, own in zip(found, floats, strict=True)]
    as_base64 = [msgspec.json.encode({**each, "values": base64.b64encode(each["values"]).decode()}) for each in packed]
    as_bytes = [msgspec.msgpack.encode(each) for each in packed]

    def lists(decoder: Any, messages: list[bytes]) -> Callable[[], None]:
        def work() -> None:
            for value in messages:
                message = decoder.decode(value)
                rows.finite(message.values)
                np.array(message.times)

        return work

    def binary(decoder: Any, messages: list[bytes]) -> Callable[[], None]:
        def work() -> None:
            for value in messages:
                message = decoder.decode(value)
                np.frombuffer(message.values, dtype=np.float32).copy()
                np.array(message.times)

        return work

    def whole(*, with_arrays: bool) -> Callable[[], None]:
        decoder = a_decoder(with_arrays=with_arrays)
        records = [Record(index, value) for index, value in enumerate(values)]

        def work() -> None:
            for record in records:
                decoder.decode(record, None)

        return work

    return {
        "JSON, lists": lists(msgspec.json.Decoder(Lists), values),
        "JSON, arrays": lambda: [read(value) for value in values] and None,
        "msgpack, lists": lists(msgspec.msgpack.Decoder(Lists), as_msgpack),
        "JSON, float32 as base64": binary(msgspec.json.Decoder(Packed), as_base64),
        "msgpack, float32 as bytes": binary(msgspec.msgpack.Decoder(Packed), as_bytes),
        "decoder, lists": whole(with_arrays=False),
        "decoder, arrays": whole(with_arrays=True),
    }


def a_decoder(*, with_arrays: bool) -> Decoder:
    """Return a decoder of the own format, as with simdjson or without it."""
    parser_type = arrays.parser_type
    arrays.parser_type = parser_type if with_arrays else None
    try:
        return Decoder(DecodeSettings(), [ChannelSettings(name=name) for name in NAMES])
    finally:
        arrays.parser_type = parser_type


def measure() -> dict[str, float]:
    """Return the least CPU microseconds a message."""
    values = [
        chunk(stream, sequence, own, 1_760_000_000.0 + index)
        for index, (stream, sequence, own, _) in enumerate(sequences(MESSAGES))
    ]
    found: dict[str, float] = {}
    for _ in range(TURNS):
        for name, work in cases(values).items():
            begin = time.process_time()
            work()
            us = (time.process_time() - begin) / MESSAGES * 1e6
            found[name] = min(found.get(name, float("inf")), us)
    return {name: round(us, 1) for name, us in found.items()}


def fuzz(n: int, seed: int) -> dict[str, int]:
    """Compare both ways over ``n`` messages; end at the first that differs."""
    both, reader = pairs(), arrays.ArrayReader()
    counts = {"messages": n, "read into arrays": 0, "refused": 0}
    for index, value in enumerate(number_chunks(n, seed)):
        fast, slow = both[index % len(both)]
        ours, theirs = outcome(fast, value), outcome(slow, value)
        if ours != theirs:
            raise SystemExit(f"message {index} of seed {seed}: {value!r}\n{ours}\n{theirs}")
        counts["read into arrays"] += reader.read(value) is not None
        counts["refused"] += isinstance(ours, tuple)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fuzz", type=int, metavar="N", help="compare N messages instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    found: dict[str, Any] = fuzz(options.fuzz, options.seed) if options.fuzz else measure()
    if options.json:
        print(json.dumps(found))
        return
    if not options.fuzz:
        print(f"microseconds a message of {SAMPLES} x {len(NAMES)}")
    for name, number in found.items():
        print(f"{name:28} {number:10,}")


if __name__ == "__main__":
    main()
