"""streamad init: a plant written in any shape of the kinds is read as it is, or refused; never silently otherwise."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.shared.plants import load_plant
from streamad.errors import StreamadError
from streamad.types import FinishedSequence
from tests.support.examples import examples
from tests.support.exports import NAMES, Row, Shape, plant, shapes, write
from tests.unit.commands.test_init import sequences_of

N_DRAWS = int(os.environ.get("N_SHAPES", examples(100)))
"""How many shapes are drawn."""


def read(sample: Path, config: Path) -> tuple[list[FinishedSequence], list[str], str] | None:
    """Return the sequences, the channels, and what was said; None if the sample is refused in one line."""
    result = CliRunner().invoke(app, ["init", str(sample), "--out", str(config)])
    if result.exception is not None:
        assert isinstance(result.exception, StreamadError), result.exception
        assert "\n" not in str(result.exception)
        return None
    channels = [channel.name for channel in load_plant(config).settings.channels]
    found, _ = asyncio.run(sequences_of(config))
    return found, channels, result.output


def values_of(sequences: Sequence[FinishedSequence], channels: list[str]) -> list[list[Any]]:
    """Return the readings of each sequence, in an order that its first readings give."""
    order = [channels.index(name) for name in NAMES]
    return sorted(rounded(sequence.values[:, order]) for sequence in sequences)


def rounded(values: Any) -> list[Any]:
    """Return readings as they compare, missing ones as -1."""
    found: list[Any] = np.round(np.nan_to_num(np.array(values, dtype=np.float32).astype(float), nan=-1), 3).tolist()
    return found


def readings_of(rows: Sequence[Row]) -> list[Any]:
    return rounded([row.readings for row in rows])


def is_guess(shape: Shape, said: str) -> bool:
    """Return whether nothing told the sequences apart: no time and no id that names itself, as ``said``."""
    if shape.time != "none" or shape.ids not in ("none", "two"):
        return False
    of_halves = shape.files == "halves" and "was taken for one sequence" in said
    return of_halves or "as a stopgap" in said or "is taken for the time" in said


@settings(max_examples=N_DRAWS, deadline=None)
@given(shape=shapes(), seed=st.integers(0, 50))
def test_a_plant_in_any_shape_is_read_as_it_is_or_refused_in_a_line(shape: Shape, seed: int) -> None:
    with TemporaryDirectory() as folder:
        batches = plant(seed, n_streams=shape.n_streams, has_holes=shape.has_holes)
        found = read(write(shape, batches, Path(folder)), Path(folder) / "plant.yaml")
    if found is None:
        return
    sequences, channels, said = found
    if is_guess(shape, said):
        return
    assert sorted(channels) == sorted(NAMES), said
    assert values_of(sequences, channels) == sorted(map(readings_of, batches)), said


@settings(max_examples=N_DRAWS // 2, deadline=None)
@given(shape=shapes(), seed=st.integers(0, 50), at=st.tuples(st.integers(0, 99), st.integers(1, 99)))
def test_of_a_file_cut_anywhere_the_whole_rows_are_read_or_it_is_refused_in_a_line(
    shape: Shape, seed: int, at: tuple[int, int]
) -> None:
    shape = replace(shape, files="one", beside=tuple(name for name in shape.beside if name != "Reference"))
    with TemporaryDirectory() as folder:
        batches = plant(seed, n_streams=shape.n_streams, has_holes=shape.has_holes)
        sample = write(shape, batches, Path(folder))
        content = sample.read_bytes()
        sample.write_bytes(content[: at[0] * len(content) // 100 + at[1]])
        found = read(sample, Path(folder) / "plant.yaml")
    if found is None:
        return
    sequences, channels, said = found
    if is_guess(shape, said) or len(sequences) < 3:
        return  # too little to tell ids and set points from readings
    assert sorted(channels) == sorted(NAMES), said
    whole = {tuple(readings) for of in batches for readings in readings_of(of)}
    of_file = {tuple(readings) for of in values_of(sequences, channels) for readings in of}
    n_cut = 2 if shape.kind.startswith("long") else 1  # of one reading a row: a cut time, and the sample that lacks it
    assert len(of_file - whole) <= n_cut, said
    lengths = [len(sequence.values) for sequence in sequences]
    assert sum(length not in map(len, batches) for length in lengths) <= shape.n_streams + 1, (
        said
    )  # a cut id is another
