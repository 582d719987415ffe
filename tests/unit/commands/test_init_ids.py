"""streamad init: which fields name the stream and the sequence, and what happens if none tells sequences apart."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.init.facts.columns import Column, columns_of
from streamad.commands.init.facts.rows import Rows
from streamad.commands.init.facts.words import id_hints
from streamad.commands.init.rules.ids import find_ids
from streamad.commands.shared.plants import load_plant
from streamad.errors import SourceError
from tests.unit.commands.test_init import T0, init, iso, jsonl, sequences_of

Row = tuple[str, str, int, float]


def two_reactors(lengths: tuple[int, ...] = (30, 25, 28, 31), shift: int = 7) -> list[Row]:
    """Return reactor, batch, time and reading of two reactors at once, in the order of time."""
    found: list[Row] = []
    for number, reactor in enumerate(("R1", "R2")):
        time = T0 + shift * number
        for batch, length in enumerate(lengths):
            found += [(reactor, f"B-{2 * batch + number:03d}", time + 10 * i, math.sin(i / 5)) for i in range(length)]
            time += 10 * length + 200
    return sorted(found, key=lambda row: row[2])


def nested(rows: list[Row]) -> Iterator[dict[str, Any]]:
    for reactor, batch, time, reading in rows:
        yield {
            "meta": {"site": "S1", "asset": {"id": reactor}},
            "batch": {"no": batch},
            "time": iso(time),
            "signals": {"temp": {"v": reading, "ok": True}, "ph": {"v": reading + 7, "ok": time % 9 > 0}},
        }


def unnamed(rows: list[Row]) -> Iterator[dict[str, Any]]:
    for reactor, batch, time, reading in rows:
        yield {"site": "S1", "a": reactor, "b": batch, "time": time, "temp": reading, "ph": reading + 7}


def of_a_line(rows: list[Row]) -> Iterator[dict[str, Any]]:
    """Two names of streams, of which the first one tells nothing."""
    for reactor, batch, time, reading in rows:
        line = "L1" if time % 3 else "L2"
        yield {"line": line, "reactor": reactor, "lot": batch, "time": time, "temp": reading, "ph": reading + 7}


def with_a_constant_machine(rows: list[Row]) -> Iterator[dict[str, Any]]:
    for reactor, batch, time, reading in rows:
        yield {"machine": "M1", "part": reactor, "lot": batch, "time": time, "temp": reading, "ph": reading + 7}


FORMS = [
    (nested, "meta.asset.id", "batch.no"),
    (unnamed, "a", "b"),
    (of_a_line, "reactor", "lot"),
]


@pytest.mark.parametrize(("form", "stream", "sequence"), FORMS)
@pytest.mark.parametrize("shift", [0, 7])
def test_two_reactors_at_once_become_two_streams(
    tmp_path: Path, form: Callable[[list[Row]], Iterator[dict[str, Any]]], stream: str, sequence: str, shift: int
) -> None:
    sample = jsonl(tmp_path / "two.jsonl", list(form(two_reactors(shift=shift))))
    result = init(sample)
    assert result.exit_code == 0, result.output or result.exception
    fields = load_plant(tmp_path / "plant.yaml").settings.decode.fields
    assert fields is not None
    assert (fields.stream, fields.sequence) == (stream, sequence)
    sequences, counters = asyncio.run(sequences_of(tmp_path / "plant.yaml"))
    assert sorted(one.n_samples for one in sequences) == sorted((30, 25, 28, 31) * 2)
    assert (counters.late_samples, counters.merged) == (0, 0)


def test_ids_that_begin_anew_in_each_reactor_are_told_apart_by_it(tmp_path: Path) -> None:
    rows = [(reactor, batch[:-1], time, reading) for reactor, batch, time, reading in two_reactors(shift=0)]
    init(jsonl(tmp_path / "two.jsonl", list(unnamed(rows))))
    fields = load_plant(tmp_path / "plant.yaml").settings.decode.fields
    assert fields is not None
    assert fields.stream == "a"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("batch.no", {"batch", "no"}),
        ("meta.asset.id", {"asset", "id"}),
        ("header.lot", {"lot"}),
        ("order.key.value", {"value"}),
        ("Lot No.", {"lot", "no"}),
        ("id", {"id"}),
    ],
)
def test_words_that_say_what_a_field_names(path: str, words: set[str]) -> None:
    assert id_hints(path) == words


def columns(messages: list[dict[str, Any]]) -> dict[str, Column]:
    return columns_of(messages)


def test_a_constant_field_is_no_stream_by_its_values_and_by_its_name_only_if_no_other_is() -> None:
    in_order = [{"site": "S1", "product": f"P{n // 40}", "lot": f"L{n // 10}", "temp": n % 7} for n in range(120)]
    notes: list[str] = []
    assert find_ids(columns(in_order), notes, Rows(np.zeros(120, dtype=np.int64), counts=True)) == (
        None,
        ("lot",),
        None,
        False,
    )
    alone = [{"machine": "M1", "lot": f"L{n // 10}"} for n in range(120)]
    assert find_ids(columns(alone), notes, Rows(np.zeros(120, dtype=np.int64), counts=True)) == (
        "machine",
        ("lot",),
        None,
        False,
    )
    overlapping = [{"machine": "M1", "x": f"x{n % 2}", "lot": f"L{n // 20}{n % 2}"} for n in range(120)]
    assert find_ids(columns(overlapping), notes, Rows(np.zeros(120, dtype=np.int64), counts=True)) == (
        "x",
        ("lot",),
        None,
        False,
    )
    assert notes == ["x was taken for the stream, because its values tell overlapping sequences apart"]


def test_texts_of_unbroken_courses_are_ids_also_beside_a_stream(tmp_path: Path) -> None:
    rows = two_reactors()
    messages = [
        {"reactor": reactor, "b": batch, "shift": f"S{time // 600 % 2}", "time": time, "temp": reading, "ph": -reading}
        for reactor, batch, time, reading in rows
    ]
    result = init(jsonl(tmp_path / "two.jsonl", messages))
    assert "b was taken for the sequence id by its values" in result.stderr
    fields = load_plant(tmp_path / "plant.yaml").settings.decode.fields
    assert fields is not None
    assert (fields.stream, fields.sequence) == ("reactor", "b")


def test_dates_in_other_fields_are_no_ids(tmp_path: Path) -> None:
    messages = [
        {"time": T0 + 10 * n + n // 30 * 600, "day": f"0{1 + n // 60}.03.2026", "temp": math.sin(n), "ph": n % 5}
        for n in range(180)
    ]
    init(jsonl(tmp_path / "days.jsonl", messages))
    settings = load_plant(tmp_path / "plant.yaml").settings
    assert settings.decode.fields is not None
    assert (settings.decode.fields.stream, settings.decode.fields.sequence) == ("stream", None)
    assert settings.sequences.end == ("gap",)


def lossy(folder: Path) -> Path:
    """Write two reactors at once whose messages do not name them."""
    messages = [
        {"batch": batch, "time": time, "temp": reading, "ph": -reading} for _, batch, time, reading in two_reactors()
    ]
    return jsonl(folder / "mixed.jsonl", messages)


def test_a_config_that_would_lose_many_samples_is_not_written_without_force(tmp_path: Path) -> None:
    sample = lossy(tmp_path)
    result = init(sample)
    assert isinstance(result.exception, SourceError)
    said = str(result.exception)
    assert "(stream none, sequence batch, time time) would lose" in said
    assert "too late): nothing was written; give a sample whose fields tell its sequences apart" in said
    assert "\n" not in said
    assert not (tmp_path / "plant.yaml").exists()
    assert "sequence     batch" in result.stdout
    forced = init(sample, "--force")
    assert forced.exit_code == 0
    assert "correct decode.fields and sequences before training" in forced.stderr
    assert json.loads(init(sample, "--force", "--json").stdout)["lost"] > 0.05


def test_check_and_train_name_the_loss_and_train_goes_on_only_by_force(tmp_path: Path) -> None:
    init(lossy(tmp_path), "--force")
    config = tmp_path / "plant.yaml"
    text, n = re.subn("# recordings: [^ ]*", "recordings: mixed.jsonl", config.read_text())
    assert n == 1
    config.write_text(text)
    found = json.loads(CliRunner().invoke(app, ["check", "-c", str(config), "--fast", "--json"]).stdout)["checks"]
    late = [one for one in found if "came too late, and are lost" in one["message"]]
    assert [one["check"] for one in late] == ["sequences", "model.recordings"]
    assert all("a field that tells streams apart is missing (decode.fields.stream)" in one["advice"] for one in late)
    result = CliRunner().invoke(app, ["train", "-c", str(config)])
    assert result.exit_code == 1
    assert "too late) are lost, so sequences are cut wrongly or incomplete" in str(result.exception)
    assert not (tmp_path / "registry").exists()


def test_lengths_that_differ_widely_are_named(tmp_path: Path) -> None:
    lengths = [20, 22, 700, 21, 20, 650]
    messages = []
    for batch, length in enumerate(lengths):
        begin = T0 + 10_000 * batch
        messages += [{"batch": f"B{batch}", "time": begin + i, "temp": math.sin(i), "ph": i % 7} for i in range(length)]
    result = init(jsonl(tmp_path / "wide.jsonl", messages))
    assert "6 sequences have 20 to 700 samples -> sequences of one kind have similar lengths" in result.stderr
    few = [message for message in messages if message["batch"] not in ("B2", "B5")]
    again = init(jsonl(tmp_path / "even.jsonl", few), "--force")
    assert "similar lengths" not in again.stderr
