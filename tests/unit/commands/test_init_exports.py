"""streamad init: exports in the shapes that plants have are read right, as a said guess, or refused with the remedy."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

from streamad.cli import app
from streamad.commands.shared.plants import load_plant
from streamad.errors import SourceError
from streamad.settings.plant_yaml import Settings
from streamad.types import FinishedSequence
from tests.unit.commands.test_init import sequences_of

BEGIN = datetime(2026, 3, 2, 6, tzinfo=UTC)
LENGTHS = (25, 31, 22, 28, 30, 24, 27, 29)
STEP = timedelta(seconds=10)


class Sample:
    """One sample of the plant: its batch, its place in the batch and in all, its time, and three readings."""

    def __init__(self, batch: int, place: int, at: int, time: datetime, readings: tuple[float, float, float]) -> None:
        self.batch, self.place, self.at, self.time, self.readings = batch, place, at, time, readings

    @property
    def id(self) -> str:
        return f"B-{self.batch + 1:04d}"


def samples(step: timedelta = STEP, pause: timedelta = timedelta(minutes=20), seed: int = 3) -> list[Sample]:
    rng, found, time = random.Random(seed), [], BEGIN
    for batch, length in enumerate(LENGTHS):
        for place in range(length):
            temp = 20 + 5 * math.sin(place / 4) + rng.random()
            speed = 1500 + 600 * math.cos(place / 6) + 9 * rng.random()
            found.append(
                Sample(
                    batch,
                    place,
                    len(found),
                    time,
                    (
                        round(temp, 3),
                        round(1 + rng.random() / 10, 4),
                        round(speed, 1),
                    ),
                )
            )
            time += step
        time += pause
    return found


NAMES = ("temp", "pressure", "speed")


def written(path: Path, columns: dict[str, Callable[[Sample], Any]], of: list[Sample], delimiter: str = ",") -> Path:
    """Write a table; cells that hold the delimiter stand in quotes."""

    def cell(value: Any) -> str:
        text = str(value)
        return f'"{text}"' if delimiter in text else text

    lines = [delimiter.join(columns), *(delimiter.join(cell(get(one)) for get in columns.values()) for one in of)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def readings(form: Callable[[float], Any] = lambda value: value) -> dict[str, Callable[[Sample], Any]]:
    return {name: lambda one, at=at: form(one.readings[at]) for at, name in enumerate(NAMES)}  # type: ignore[misc]


def init(sample: Path | str, folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["init", str(sample), "--out", str(folder / "plant.yaml"), *arguments])


def read(sample: Path, folder: Path, *arguments: str) -> tuple[Settings, list[FinishedSequence], str]:
    """Run init and read with its config; return the settings, the sequences and what was said."""
    result = init(sample, folder, *arguments)
    assert result.exit_code == 0, result.output or result.exception
    found, counters = asyncio.run(sequences_of(folder / "plant.yaml"))
    assert not counters.dead_letters
    assert not counters.late_samples
    return load_plant(folder / "plant.yaml").settings, found, result.output


def agrees(found: list[FinishedSequence], settings: Settings, expected: list[Sample]) -> None:
    """Assert that sequences, samples and values are those of the plant."""
    assert sorted(channel.name for channel in settings.channels) == sorted(NAMES)
    order = [[channel.name for channel in settings.channels].index(name) for name in NAMES]
    by_batch: dict[int, list[tuple[float, float, float]]] = {}
    for one in expected:
        by_batch.setdefault(one.batch, []).append(one.readings)
    ordered = sorted(found, key=lambda sequence: sequence.start_us)
    assert [sequence.n_samples for sequence in ordered] == [len(rows) for rows in by_batch.values()]
    for sequence, rows in zip(ordered, by_batch.values(), strict=True):
        np.testing.assert_allclose(sequence.values[:, order], np.array(rows, dtype=np.float32), rtol=1e-6)


def iso(one: Sample) -> str:
    return one.time.isoformat().replace("+00:00", "Z")


def named(**columns: Callable[[Sample], Any]) -> dict[str, Callable[[Sample], Any]]:
    return {"time": iso, "batch": lambda one: one.id, **columns, **readings()}


# --- A: marks of thousands ---


def test_thousands_with_decimals_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", {**named(), **readings(lambda value: f"{value:,}")}, samples())
    settings, found, _ = read(path, tmp_path)
    assert (settings.decode.decimal, settings.decode.thousands) == (".", ",")
    agrees(found, settings, samples())


@pytest.mark.parametrize(
    ("write", "delimiter", "decimal", "thousands"),
    [
        (lambda value: f"{value:,}", ",", ".", ","),
        (lambda value: f"{value:,}".translate(str.maketrans(",.", ".,")), ";", ",", "."),
        (lambda value: f"{value:,}".replace(",", "'"), ",", ".", "'"),
        (lambda value: f"{value:,}".replace(",", "\u2019"), ",", ".", "'"),
        (lambda value: f"{value:,}".replace(",", "\u202f"), "\t", ".", " "),
        (lambda value: str(value).replace(".", ","), ";", ",", None),
    ],
)
def test_every_style_of_numbers_is_found(
    tmp_path: Path, write: Callable[[float], str], delimiter: str, decimal: str, thousands: str | None
) -> None:
    path = written(tmp_path / "a.csv", {**named(), **readings(write)}, samples(), delimiter)
    settings, found, _ = read(path, tmp_path)
    assert (settings.decode.decimal, settings.decode.thousands) == (decimal, thousands)
    agrees(found, settings, samples())


def test_whole_numbers_around_a_thousand_are_thousands(tmp_path: Path) -> None:
    whole = [Sample(one.batch, one.place, one.at, one.time, (round(one.readings[2]) - 700, 2, 3)) for one in samples()]
    columns: dict[str, Callable[[Sample], Any]] = {"time": iso, "batch": lambda one: one.id}
    columns |= {"rate": lambda one: f"{one.readings[0]:,}", "ph": lambda one: one.at % 5}
    assert any("," in columns["rate"](one) for one in whole)
    assert any("," not in columns["rate"](one) for one in whole)
    settings, found, _ = read(written(tmp_path / "a.csv", columns, whole), tmp_path)
    assert settings.decode.thousands == ","
    assert found[0].values[:, 0].tolist() == [one.readings[0] for one in whole if one.batch == 0]


@pytest.mark.parametrize(
    ("delimiter", "value", "line"),
    [(",", 1234.0, "set decode.decimal: ','"), (";", 1.234, "set decode.thousands: ','")],
)
def test_three_digits_behind_every_comma_are_a_guess_with_its_alternative(
    tmp_path: Path, delimiter: str, value: float, line: str
) -> None:
    of = samples()
    columns: dict[str, Callable[[Sample], Any]] = {
        "time": iso,
        "batch": lambda one: one.id,
        "ph": lambda one: one.at % 5,
    }
    columns["flow"] = lambda one: "1,234" if one.at == 0 else f"{1 + one.at % 7},{100 + one.at % 9}"
    settings, found, said = read(written(tmp_path / "a.csv", columns, of, delimiter), tmp_path)
    at = [channel.name for channel in settings.channels].index("flow")
    assert found[0].values[0, at] == np.float32(value)
    assert line in said


def test_lakhs_are_read(tmp_path: Path) -> None:
    def indian(value: float) -> str:
        whole, fraction = f"{value:.1f}".split(".")
        return f"{whole[:-5]},{whole[-5:-3]},{whole[-3:]}.{fraction}" if len(whole) > 5 else f"{value:,.1f}"

    columns = {**named(), "energy": lambda one: indian(200 * one.readings[2])}
    settings, found, _ = read(written(tmp_path / "a.csv", columns, samples()), tmp_path)
    assert settings.decode.thousands == ","
    at = [channel.name for channel in settings.channels].index("energy")
    expected = np.array([round(200 * one.readings[2], 1) for one in samples() if one.batch == 0], dtype=np.float32)
    assert expected.max() > 100_000
    assert found[0].values[:, at].tolist() == expected.tolist()


@pytest.mark.parametrize("mark", [",", "."])
def test_whole_numbers_around_a_thousand_are_thousands_whatever_their_mark(tmp_path: Path, mark: str) -> None:
    whole = [Sample(one.batch, one.place, one.at, one.time, (round(one.readings[2]) - 700, 2, 3)) for one in samples()]
    columns: dict[str, Callable[[Sample], Any]] = {"time": iso, "batch": lambda one: one.id}
    columns |= {"rate": lambda one: f"{one.readings[0]:,}".replace(",", mark), "ph": lambda one: one.at % 5}
    settings, found, _ = read(written(tmp_path / "a.csv", columns, whole, ";"), tmp_path)
    assert settings.decode.thousands == mark
    assert found[0].values[:, 0].tolist() == [one.readings[0] for one in whole if one.batch == 0]


def test_three_digits_behind_every_point_are_decimals_which_is_said_in_a_table_of_semicolons(tmp_path: Path) -> None:
    columns: dict[str, Callable[[Sample], Any]] = {"time": iso, "batch": lambda one: one.id}
    columns |= {"flow": lambda one: f"{1 + one.at % 7}.{100 + one.at % 9}", "ph": lambda one: one.at % 5}
    settings, _, said = read(written(tmp_path / "a.csv", columns, samples(), ";"), tmp_path)
    assert (settings.decode.decimal, settings.decode.thousands) == (".", None)
    assert "1.100 is read as 1.1; if it means 1100, set decode.decimal: ',', decode.thousands: '.'" in said


# --- B: samples that share a time ---


def whole_seconds(one: Sample) -> str:
    return f"{one.time:%d.%m.%Y %H:%M:%S}"


QUARTER = timedelta(milliseconds=250)


@pytest.mark.parametrize(
    ("name", "unit", "of"),
    [("ms", "ms", lambda time: f"{time.microsecond // 1000:03d}"), ("usec", "us", lambda time: str(time.microsecond))],
)
def test_parts_of_a_second_beside_the_time_are_joined(
    tmp_path: Path, name: str, unit: str, of: Callable[[datetime], str]
) -> None:
    columns = {"Zeit": whole_seconds, "lot": lambda one: one.id, name: lambda one: of(one.time), **readings()}
    settings, found, said = read(written(tmp_path / "b.csv", columns, samples(QUARTER)), tmp_path)
    assert settings.decode.fields is not None
    assert [(part.field, part.unit) for part in settings.decode.fields.fractions] == [(name, unit)]
    assert "rows share their time" in said
    agrees(found, settings, samples(QUARTER))
    assert np.diff(found[0].times_us).tolist() == [250_000] * (LENGTHS[0] - 1)


def test_an_excel_number_beside_a_coarse_date_is_the_time(tmp_path: Path) -> None:
    def serial(one: Sample) -> str:
        days = (one.time.replace(tzinfo=None) - datetime(1899, 12, 30)) / timedelta(days=1)  # noqa: DTZ001 - as Excel
        return f"{days * 1e6:.5f}"

    columns = {"TimeString": whole_seconds, "lot": lambda one: one.id, **readings(), "Time_ms": serial}
    settings, found, _ = read(written(tmp_path / "b.csv", columns, samples(QUARTER)), tmp_path)
    assert settings.decode.time_format == "wincc_time_ms"
    agrees(found, settings, samples(QUARTER))


def test_four_samples_of_one_second_are_a_loss_that_is_refused_with_the_way_out(tmp_path: Path) -> None:
    columns = {"Zeit": whole_seconds, "lot": lambda one: one.id, **readings()}
    path = written(tmp_path / "b.csv", columns, samples(QUARTER))
    result = init(path, tmp_path)
    assert isinstance(result.exception, SourceError)
    assert "have the time of another in Zeit" in str(result.exception)
    assert "--row-period 250ms" in str(result.exception)
    settings, found, _ = read(path, tmp_path, "--row-period", "250ms")
    agrees(found, settings, samples(QUARTER))
    assert np.diff(found[0].times_us).tolist() == [250_000] * (LENGTHS[0] - 1)


def test_rows_are_no_time_where_nothing_else_tells_sequences_apart(tmp_path: Path) -> None:
    path = written(tmp_path / "b.csv", {"Zeit": whole_seconds, **readings()}, samples(QUARTER))
    advised = init(path, tmp_path)
    assert isinstance(advised.exception, SourceError)
    assert "--row-period" not in str(advised.exception)
    result = init(path, tmp_path, "--row-period", "250ms")
    assert isinstance(result.exception, SourceError)
    assert "--row-period drops the times" in str(result.exception)


# --- C: what is no reading ---


@pytest.mark.parametrize(
    ("name", "cell", "why"),
    [
        ("anomaly", lambda one: int(one.at % 9 == 0), "a label"),
        ("is_faulty", lambda one: one.batch % 2, "a label"),
        ("Reference", lambda one: 7000 + 3 * one.batch, "it counts sequences"),
        ("batch_no", lambda one: 10 - one.batch, "named as an id"),
        ("ts_ms", lambda one: round(one.time.timestamp() * 1000), "a time beside that of the samples"),
        ("seconds", lambda one: one.place * 10, "rises with the time alone"),
        ("runtime_h", lambda one: round((one.time - BEGIN) / timedelta(hours=1), 6), "rises with the time alone"),
        ("packet", lambda one: one.at % 100, "counts the rows"),
        ("valve", lambda one: 4, "never changes"),
    ],
)
def test_numbers_that_measure_nothing_are_left_out_with_the_reason(
    tmp_path: Path, name: str, cell: Callable[[Sample], Any], why: str
) -> None:
    settings, found, said = read(written(tmp_path / "c.csv", named(**{name: cell}), samples()), tmp_path)
    agrees(found, settings, samples())
    assert why in next(line for line in said.splitlines() if line.startswith(f"left out     {name}:"))


def test_a_set_point_that_differs_between_batches_stays_a_channel(tmp_path: Path) -> None:
    points = (3, 8, 5, 2, 9, 4, 7, 1)
    settings, _, _ = read(
        written(tmp_path / "c.csv", named(target_flow=lambda one: points[one.batch]), samples()), tmp_path
    )
    assert "target_flow" in [channel.name for channel in settings.channels]


def test_if_only_labels_and_clocks_are_left_the_sample_is_refused(tmp_path: Path) -> None:
    columns = {
        "time": iso,
        "batch": lambda one: one.id,
        "fault": lambda one: one.batch % 2,
        "ms": lambda one: one.place * 10,
    }
    result = init(written(tmp_path / "c.csv", columns, samples()), tmp_path)
    assert isinstance(result.exception, SourceError)
    assert "nothing numeric found besides ids and times" in str(result.exception)
    assert "fault: a label" in str(result.exception)


# --- D: ids and restarts ---


@pytest.mark.parametrize("first", [0, 1])
def test_a_time_that_begins_anew_without_ids_begins_a_sequence(tmp_path: Path, first: int) -> None:
    columns = {"time_s": lambda one: (one.place + first) / 100, **readings()}
    settings, found, said = read(written(tmp_path / "d.csv", columns, samples()), tmp_path)
    assert settings.sequences.end == ("restart",)
    assert "the time begins anew 7 times" in said
    agrees(found, settings, samples())


def test_the_field_that_changes_where_the_time_begins_anew_is_the_id_whatever_its_name(tmp_path: Path) -> None:
    columns = {"unit_nr": lambda one: one.batch + 1, "cycles": lambda one: one.place + 1, **readings()}
    settings, found, _ = read(written(tmp_path / "d.csv", columns, samples()), tmp_path)
    assert [one.sequence for one in found] == [str(n + 1) for n in range(8)]
    agrees(found, settings, samples())


def test_two_fields_that_change_there_name_the_sequence_together(tmp_path: Path) -> None:
    columns = {
        "faultNumber": lambda one: one.batch // 4,
        "simulationRun": lambda one: one.batch % 4 + 1,
        "sample": lambda one: one.place + 1,
        **readings(),
    }
    settings, found, said = read(written(tmp_path / "d.csv", columns, samples()), tmp_path)
    assert [one.sequence for one in found] == ["0/1", "0/2", "0/3", "0/4", "1/1", "1/2", "1/3", "1/4"]
    assert "change where the time begins anew" in said
    agrees(found, settings, samples())


def test_a_number_that_changes_in_pauses_alone_is_the_id(tmp_path: Path) -> None:
    columns = {"time": iso, "Cure": lambda one: 4711 + one.batch, **readings()}
    settings, found, said = read(written(tmp_path / "d.csv", columns, samples()), tmp_path)
    assert [one.sequence for one in found] == [str(4711 + n) for n in range(8)]
    assert "Cure was taken for the sequence id by its values" in said
    agrees(found, settings, samples())


def test_a_phase_that_changes_within_a_course_is_no_id(tmp_path: Path) -> None:
    columns = {"time": iso, "phase": lambda one: 100 * one.batch + one.place // 12, **readings()}
    settings, found, _ = read(written(tmp_path / "d.csv", columns, samples()), tmp_path)
    assert settings.sequences.end == ("gap",)
    assert [one.n_samples for one in found] == list(LENGTHS)


# --- E: split times ---


def test_times_of_each_tag_are_refused_with_what_to_write(tmp_path: Path) -> None:
    def shifted(seconds: int) -> Callable[[Sample], str]:
        return lambda one: f"{one.time + timedelta(seconds=seconds):%d-%b-%y %H:%M:%S}"

    columns = {
        "Timestamp": shifted(0), "TI-101": lambda one: one.readings[0],
        "Timestamp.1": shifted(3), "PI-200": lambda one: one.readings[1],
        "Timestamp.2": shifted(5), "SI-3": lambda one: one.readings[2],
    }  # fmt: skip
    result = init(written(tmp_path / "e.csv", columns, samples()), tmp_path)
    assert isinstance(result.exception, SourceError)
    assert "each channel has times of its own: TI-101 in Timestamp, PI-200 in Timestamp.1" in str(result.exception)


def test_a_second_time_is_no_time_of_a_tag(tmp_path: Path) -> None:
    columns = named(received=lambda one: (one.time + timedelta(seconds=2)).isoformat())
    settings, found, _ = read(written(tmp_path / "e.csv", columns, samples()), tmp_path)
    assert settings.decode.fields is not None
    assert settings.decode.fields.time == "time"
    agrees(found, settings, samples())


@pytest.mark.parametrize("name", ["Analyte", "TagIndex"])
def test_a_table_with_one_reading_a_row_may_name_channels_so_or_by_numbers(name: str, tmp_path: Path) -> None:
    names = dict(zip(NAMES, ("1", "2", "4"), strict=True)) if name == "TagIndex" else {one: one for one in NAMES}
    rows = [
        f"{one.time:%Y-%m-%d},{one.time:%H:%M:%S},{one.time.microsecond // 1000},{names[of]},{value}"
        for one in samples(QUARTER)
        for of, value in zip(NAMES, one.readings, strict=True)
    ]
    path = tmp_path / "f.csv"
    path.write_text("\n".join([f"Date,Time,Millitm,{name},Value", *rows]) + "\n")
    settings, found, _ = read(path, tmp_path)
    assert [channel.name for channel in settings.channels] == list(names.values())
    expected = np.array([one.readings for one in samples(QUARTER) if one.batch == 0], dtype=np.float32)
    np.testing.assert_array_equal(found[0].values, expected)
    assert np.diff(found[0].times_us).tolist() == [250_000] * (LENGTHS[0] - 1)


# --- F: nested and long forms ---


def test_objects_in_the_place_of_values_are_missing_values_of_a_long_form(tmp_path: Path) -> None:
    bad = {"Name": "Bad Input", "Value": 246, "IsSystem": True}
    lines = [
        {
            "Name": name,
            "Timestamp": iso(one),
            "Batch": one.id,
            "Value": bad if (one.at + at) % 50 == 7 else value,
            "Good": True,
        }
        for one in samples()
        for at, (name, value) in enumerate(zip(NAMES, one.readings, strict=True))
    ]
    path = tmp_path / "f.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = init(path, tmp_path)
    assert result.exit_code == 0, result.output
    found, counters = asyncio.run(sequences_of(tmp_path / "plant.yaml"))
    assert [one.n_samples for one in found] == list(LENGTHS)
    assert found[0].values.shape[1] == 3
    assert sum(sum(of.values()) for of in counters.bad_values.values()) == sum(
        isinstance(one["Value"], dict) for one in lines
    )


def test_rows_of_lists_are_the_samples_of_a_sequence(tmp_path: Path) -> None:
    by_batch = [[one for one in samples() if one.batch == batch] for batch in range(8)]
    table = pyarrow.table({
        "batch": [of[0].id for of in by_batch],
        "start": [of[0].time.replace(tzinfo=None) for of in by_batch],
        "label": [batch % 2 for batch in range(8)],
        "t": [[one.place * 10.0 for one in of] for of in by_batch],
        **{name: [[one.readings[at] for one in of] for of in by_batch] for at, name in enumerate(NAMES)},
    })  # fmt: skip
    pyarrow.parquet.write_table(table, tmp_path / "f.parquet")
    settings, found, said = read(tmp_path / "f.parquet", tmp_path)
    agrees(found, settings, samples())
    assert [one.sequence for one in found] == [of[0].id for of in by_batch]
    assert "left out     label: a label" in said


def test_the_own_format_with_another_field_keeps_that_as_the_id(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text(
        "".join(
            json.dumps({"time": iso(one), "batch": one.id, "values": dict(zip(NAMES, one.readings, strict=True))})
            + "\n"
            for one in samples()
        )
    )
    settings, found, _ = read(path, tmp_path)
    agrees(found, settings, samples())
    assert [one.sequence for one in found][:2] == ["B-0001", "B-0002"]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.jsonl", json.dumps({"batch": "B-1", "samples": [{"t": 1, "v": 2}]}), "samples holds a list of objects"),
        ("a.jsonl", json.dumps([{"time": 1, "v": 2}] * 3, indent=1), "one JSON document over several lines"),
        ("a.csv", "t x y\n" + "1.5 2.5 3.5\n" * 9, "only blanks divide its cells, such as '1.5 2.5 3.5'"),
        ("a.csv", "time,v\n" + '"1",2026-03-02 06:00:00,7\n' * 9, "none of its 9 rows has as many cells as line 1"),
        ("a.csv", "time,t\n" + "".join(f"2026-03-02 06:00:0{i},~{i}.5 °C\n" for i in range(9)), "such as '~0.5 °C'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(name: str, text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text + "\n", encoding="utf-8")
    result = init(tmp_path / name, tmp_path)
    assert isinstance(result.exception, SourceError)
    assert why in str(result.exception)
    assert "\n" not in str(result.exception)


# --- H: names with dots ---


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_names_under_one_dotted_part_are_read(tmp_path: Path, form: str) -> None:
    columns = {"ts": iso, "batch": lambda one: one.id, **{f"R1.{name}": get for name, get in readings().items()}}
    path = written(tmp_path / "h.csv", columns, samples())
    if form == "jsonl":
        path = tmp_path / "h.jsonl"
        path.write_text(
            "".join(json.dumps({key: get(one) for key, get in columns.items()}) + "\n" for one in samples())
        )
    settings, found, _ = read(path, tmp_path)
    assert [channel.name for channel in settings.channels] == [f"R1.{name}" for name in NAMES]
    assert [one.n_samples for one in found] == list(LENGTHS)


# --- J: times ---


ELAPSED: list[tuple[str, Callable[[float], str]]] = [
    ("clock", lambda s: f"{int(s // 3600):02d}:{int(s % 3600 // 60):02d}:{s % 60:06.3f}"),
    ("unit", lambda s: f"{s:g} sec"),
    ("pandas", lambda s: f"0 days {int(s // 3600):02d}:{int(s % 3600 // 60):02d}:{s % 60:09.6f}"),
    ("number", lambda s: f"{s:g}"),
    ("negative", lambda s: f"{s - 20:g}"),
]


@pytest.mark.parametrize(("_", "form"), ELAPSED)
@pytest.mark.parametrize("is_file", [False, True])
def test_times_since_a_start_are_read(tmp_path: Path, _: str, form: Callable[[float], str], is_file: bool) -> None:
    columns = {"Time": lambda one: form(one.place * 10.0), "rep": lambda one: one.id, **readings()}
    if is_file:
        del columns["rep"]
        for batch in range(8):
            of = [one for one in samples() if one.batch == batch]
            written(tmp_path / "reps" / f"rep{batch:02d}.csv", columns, of)
        path = tmp_path / "reps"
    else:
        path = written(tmp_path / "j.csv", columns, samples())
    settings, found, _said = read(path, tmp_path)
    assert settings.decode.time == "relative"
    agrees(found, settings, samples())
    assert np.diff(found[0].times_us).tolist() == [10_000_000] * (LENGTHS[0] - 1)


def test_hours_in_a_time_s_name_are_its_unit(tmp_path: Path) -> None:
    columns = {"Time (h)": lambda one: round(one.place * 0.2, 6), "Batch ID": lambda one: one.batch + 61, **readings()}
    settings, found, _ = read(written(tmp_path / "j.csv", columns, samples()), tmp_path)
    assert settings.decode.time_unit == "h"
    assert np.diff(found[0].times_us).tolist() == [720_000_000] * (LENGTHS[0] - 1)


def test_offsets_of_hours_are_read(tmp_path: Path) -> None:
    columns = named(time=lambda one: f"{one.time + timedelta(hours=1):%Y-%m-%d %H:%M:%S}.5+01")
    settings, found, _ = read(written(tmp_path / "j.csv", columns, samples()), tmp_path)
    agrees(found, settings, samples())
    assert found[0].start_us == int((BEGIN + timedelta(seconds=0.5)).timestamp() * 1e6)


def test_without_any_time_rows_are_evenly_spaced_which_is_said(tmp_path: Path) -> None:
    columns = {"batch_id": lambda one: one.batch + 1, **readings()}
    settings, found, said = read(written(tmp_path / "j.csv", columns, samples()), tmp_path)
    assert (settings.decode.time, settings.decode.row_period) == ("row", 1_000_000)
    assert "no field holds a time" in said
    agrees(found, settings, samples())


def test_rows_are_no_time_of_streams_by_turns_whose_sequences_no_field_names_alone(tmp_path: Path) -> None:
    by_turns = [one for pair in zip(*(samples(seed=seed) for seed in (3, 4)), strict=True) for one in pair]
    columns = {
        "reactor": lambda one: f"R{by_turns.index(one) % 2}",
        "faultNumber": lambda one: one.batch // 4,
        "simulationRun": lambda one: one.batch % 4,
        **readings(),
    }
    result = init(written(tmp_path / "j.csv", columns, by_turns), tmp_path)
    assert isinstance(result.exception, SourceError), result.output
    assert "or add an id to each row that no other sequence has" in str(result.exception)


def test_a_time_that_no_rule_reads_is_quoted(tmp_path: Path) -> None:
    columns = named(time=lambda one: f"W9 day {one.at}")
    result = init(written(tmp_path / "j.csv", columns, samples()), tmp_path)
    assert isinstance(result.exception, SourceError)
    assert "time holds times such as 'W9 day 0', of an unknown format" in str(result.exception)


@pytest.mark.parametrize("begin", [1_279_967_296, 2**32 - 30_000_000])
def test_a_counter_of_32_bits_is_no_unix_time_and_may_wrap(tmp_path: Path, begin: int) -> None:
    def counter(one: Sample) -> int:
        return (begin + 16_667 * one.at + 9_000_000 * one.batch) % 2**32

    columns: dict[str, Callable[[Sample], Any]] = {"Packet": lambda one: one.place, "SampleTimeFine": counter}
    columns |= readings()
    for batch in range(8):
        written(tmp_path / "log" / f"{batch}.csv", columns, [one for one in samples() if one.batch == batch])
    settings, found, _ = read(tmp_path / "log", tmp_path)
    agrees(found, settings, samples())
    for sequence in found:
        assert set(np.diff(sequence.times_us).tolist()) == {16_667}


def test_a_counter_that_wraps_in_a_file_is_replaced_by_its_rows(tmp_path: Path) -> None:
    begin = 2**32 - 16_667 * 40
    columns: dict[str, Callable[[Sample], Any]] = {"rep": lambda one: one.id}
    columns |= {"SampleTimeFine": lambda one: (begin + 16_667 * one.at) % 2**32, **readings()}
    settings, found, said = read(written(tmp_path / "j.csv", columns, samples()), tmp_path)
    assert settings.decode.row_period == 16_667
    assert "begins anew at 2^32" in said
    agrees(found, settings, samples())


def test_titles_between_the_rows_hide_no_times(tmp_path: Path) -> None:
    path = written(tmp_path / "j.csv", {"time": iso, **readings()}, samples())
    lines = path.read_text("utf-8").splitlines()
    for at in (80, 40):
        lines.insert(at, "Batch B,,,")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = init(path, tmp_path)
    assert "2 of 218 records are unreadable: bad_time" in " ".join(result.output.split()), result.output
    found, counters = asyncio.run(sequences_of(tmp_path / "plant.yaml"))
    assert counters.dead_letters == {"bad_time": 2}
    agrees(found, load_plant(tmp_path / "plant.yaml").settings, samples())


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16-le"])
def test_a_line_of_units_says_which_column_is_the_time(encoding: str, tmp_path: Path) -> None:
    of = [one for one in samples() if one.batch < 4]
    for batch in range(4):
        rows = [f"{one.place / 50:.2e},{','.join(map(str, one.readings))}" for one in of if one.batch == batch]
        text = "\n".join([f"x-axis,{','.join(NAMES)}", "second,°C,bar,rpm", *rows]) + "\n"
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"s{batch}.csv").write_bytes(text.encode(encoding))
    settings, found, _ = read(tmp_path / "in", tmp_path)
    agrees(found, settings, of)
    assert [channel.unit for channel in settings.channels] == ["°C", "bar", "rpm"]
    assert np.diff(found[0].times_us).tolist() == [20_000] * (LENGTHS[0] - 1)


def test_a_line_of_names_that_is_in_doubt_is_a_guess_with_its_alternative(tmp_path: Path) -> None:
    path = written(tmp_path / "j.csv", {"lot": lambda one: one.id, **readings()}, samples())
    path.write_text("Name,Date,Sport,Km\nA,02-03-2026,RUN,1\n" + path.read_text("utf-8"), encoding="utf-8")
    said = " ".join(init(path, tmp_path, "--row-period", "1s").output.split())
    assert "lines 1 and 3 may both hold the names: if that is wrong, set source.options.header" in said


def test_a_clock_of_any_name_is_the_time_where_no_other_field_is(tmp_path: Path) -> None:
    for batch in range(8):
        columns = {"X_Value": lambda one: f"{one.place / 1000:.3f}", **readings()}
        written(tmp_path / "in" / f"{batch}.csv", columns, [one for one in samples() if one.batch == batch])
    settings, found, said = read(tmp_path / "in", tmp_path)
    assert "X_Value is taken for the time, because it rises by equal steps" in said
    agrees(found, settings, samples())
    assert np.diff(found[0].times_us).tolist() == [1_000] * (LENGTHS[0] - 1)
