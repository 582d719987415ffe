"""streamad init: for every form of recording it writes a config that passes the check and cuts the right sequences."""

import asyncio
import csv
import json
import math
import random
import re
import unicodedata
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from streamad.cli import app
from streamad.commands.init.facts.words import channel_names, unit_of
from streamad.commands.shared.plants import load_plant
from streamad.errors import OutputError, SourceError, StreamadError
from streamad.ingest.decode import Decoder
from streamad.runtime.recordings import read_sequences
from streamad.runtime.wiring import source_for
from streamad.settings.fields import NAME_PATTERN
from streamad.settings.plant_yaml import Settings, load_settings
from streamad.telemetry.metrics import Counters
from streamad.types import FinishedSequence, Record, from_us
from tests.support.ingest.decoded import block_in

T0 = 1_772_352_930
LENGTHS = (12, 15, 10, 14, 11)


def rows() -> list[tuple[str, str, int, float, float, bool]]:
    """Return stream, sequence, time, two readings and whether it is the last sample, of five sequences."""
    found, start = [], T0
    rng = random.Random(1)
    for number, length in enumerate(LENGTHS):
        for i in range(length):
            reading = (80 + 3 * np.sin(i / 3) + rng.random(), 3 - 0.1 * i + 0.01 * rng.random())
            stream = f"reactor-{number % 2 + 1}"
            found.append((stream, f"B-{1000 + number}", start + i, *(round(x, 4) for x in reading), i == length - 1))
        start += length + 60
    return found


def iso(time: float) -> str:
    return from_us(round(time * 1e6)).isoformat().replace("+00:00", "Z")


def jsonl(path: Path, messages: list[Any]) -> Path:
    path.write_text("".join(json.dumps(message) + "\n" for message in messages))
    return path


def table(path: Path, header: list[str], cells: list[list[Any]], delimiter: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *cells])
    return path


def own(folder: Path) -> Path:
    return jsonl(
        folder / "own.jsonl",
        [
            {
                "stream": s,
                "sequence": b,
                "time": iso(t),
                "values": {"temp_c": x, "p": y},
                **({"end": True} if e else {}),
            }
            for s, b, t, x, y, e in rows()
        ],
    )


def own_chunks(folder: Path) -> Path:
    messages: dict[str, dict[str, Any]] = {}
    for s, b, t, x, y, e in rows():
        message = messages.setdefault(b, {"stream": s, "sequence": b, "times": [], "values": []})
        message["times"].append(t)
        message["values"].append([x, y])
        message["end"] = e
    return jsonl(folder / "chunks.jsonl", list(messages.values()))


def foreign_chunks(folder: Path) -> Path:
    messages: dict[str, dict[str, Any]] = {}
    for s, b, t, x, y, _ in rows():
        message = messages.setdefault(b, {"machine": s, "job": b, "stamps": [], "rows": []})
        message["stamps"].append(t * 1000)
        message["rows"].append([x, y])
    return jsonl(folder / "chunks.jsonl", list(messages.values()))


def flat(folder: Path) -> Path:
    messages = [
        {"line": s, "batch_id": b, "ts": t * 1000, "Temp [°C]": str(x), "p": y, "operator": "A. B.", "setpoint": 80}
        for s, b, t, x, y, _ in rows()
    ]
    return jsonl(folder / "flat.jsonl", messages)


def nested(folder: Path) -> Path:
    messages = [
        {
            "header": {"unit": s},
            "batch": int(b[2:]),
            "ts": float(t),
            "done": e,
            "readings": {"TI-101": x, "PI-200": {"pv": y, "unit": "bar"}},
        }
        for s, b, t, x, y, e in rows()
    ]
    return jsonl(folder / "nested.jsonl", messages)


def renamed(folder: Path) -> Path:
    messages = [
        {"machine": s, "lot": b, "timestamp": iso(t), "data": {"TI.101": x, "PI.200": y}} for s, b, t, x, y, _ in rows()
    ]
    return jsonl(folder / "renamed.jsonl", messages)


def per_channel(folder: Path) -> Path:
    messages = [
        {"batch_id": b, "asset": s, "ts": iso(t + offset), "tag": tag, "v": value, "unit": unit}
        for s, b, t, x, y, _ in rows()
        for tag, value, unit, offset in (("TI-101", x, "°C", 0.0), ("PI-200", y, "bar", 0.1))
    ]
    return jsonl(folder / "tags.jsonl", messages)


def without_ids(folder: Path) -> Path:
    return jsonl(folder / "noids.jsonl", [{"time": t, "ax": x, "ay": y} for _, _, t, x, y, _ in rows()])


def wide_csv(folder: Path) -> Path:
    cells = [[s, b, iso(t), x, y] for s, b, t, x, y, _ in rows()]
    return table(folder / "wide.csv", ["unit", "batch", "time", "temp_c", "p"], cells)


def german_csv(folder: Path) -> Path:
    cells = [[s, b, iso(t), str(x).replace(".", ","), str(y).replace(".", ",")] for s, b, t, x, y, _ in rows()]
    return table(
        folder / "tag.csv", ["Anlage", "Charge", "Zeitstempel", "Temperatur [°C]", "Druck (bar)"], cells, delimiter=";"
    )


def long_csv_sorted_by_tag(folder: Path) -> Path:
    cells: list[list[Any]] = []
    for sequence in sorted({row[1] for row in rows()}):
        for column, tag in ((3, "TI"), (4, "PI")):
            cells += [[row[0], row[1], row[2], tag, row[column]] for row in rows() if row[1] == sequence]
    return table(folder / "long.csv", ["reactor", "batch", "ts", "tag", "value"], cells)


def ids_like_numbers_csv(folder: Path) -> Path:
    cells = [[f"1.{int(b[2:]) - 995}", t, x, y] for _, b, t, x, y, _ in rows()]
    return table(folder / "numbers.csv", ["batch", "time", "a", "b"], cells)


def relative_csv(folder: Path) -> Path:
    first = {row[1]: row[2] for row in reversed(rows())}
    cells = [[b, (t - first[b]) * 20, x, y] for _, b, t, x, y, _ in rows()]
    return table(folder / "swings.csv", ["swing", "t_ms", "ax", "ay"], cells)


def parquet(folder: Path) -> Path:
    stream, sequence, times, x, y, _ = zip(*rows(), strict=True)
    stamps = pyarrow.array([time * 1_000_000 for time in times], pyarrow.timestamp("us"))
    columns = {"vessel": stream, "batch_no": [int(b[2:]) for b in sequence], "time": stamps, "temp": x, "p": y}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "day.parquet")
    return folder / "day.parquet"


def npz(folder: Path) -> Path:
    x = np.random.default_rng(0).normal(size=(5, 2, 15)).astype(np.float32)
    np.savez_compressed(folder / "strokes.npz", x=x, len=np.array(LENGTHS), channels=np.array(["ax [g]", "gyro"]))
    return folder / "strokes.npz"


FORMS: list[Callable[[Path], Path]] = [
    own, own_chunks, foreign_chunks, flat, nested, renamed, per_channel, without_ids, wide_csv, german_csv,
    long_csv_sorted_by_tag, ids_like_numbers_csv, relative_csv, parquet, npz,
]  # fmt: skip


def init(sample: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["init", str(sample), "--out", str(sample.parent / "plant.yaml"), *arguments])


def settings_of(sample: Path) -> Settings:
    result = init(sample)
    assert result.exit_code == 0, result.output or result.exception
    return load_plant(sample.parent / "plant.yaml").settings


def read(folder: Path) -> list[FinishedSequence]:
    """Return the sequences that the config in ``folder`` reads."""
    return asyncio.run(sequences_of(folder / "plant.yaml"))[0]


async def sequences_of(config: Path) -> tuple[list[FinishedSequence], Counters]:
    plant, counters = load_plant(config), Counters()
    source = source_for(plant)
    return [found async for found in read_sequences(plant.settings, source, plant.clock, counters)], counters


@pytest.mark.parametrize("form", FORMS)
def test_init_then_check_then_read(form: Callable[[Path], Path], tmp_path: Path) -> None:
    sample = form(tmp_path)
    settings_of(sample)
    config = tmp_path / "plant.yaml"
    assert f"# recordings: {sample.name}" in (text := config.read_text()) or "classes=" in text
    assert text.count("\nschema: 1\n") == 1
    checked = CliRunner().invoke(app, ["check", "-c", str(config), "--fast"])
    assert checked.stdout.splitlines()[-1] == "all checks passed", checked.stdout
    sequences, counters = asyncio.run(sequences_of(config))
    sequences.sort(key=lambda sequence: sequence.start_us)
    per_sequence = 2 if form is per_channel else 1
    assert [sequence.n_samples for sequence in sequences] == [per_sequence * length for length in LENGTHS]
    assert not counters.dead_letters
    assert not counters.late_samples
    seen = np.concatenate([np.isfinite(sequence.values) for sequence in sequences])
    assert seen.shape[1] == 2
    assert seen.mean() == (0.5 if form is per_channel else 1.0)


def test_flat_messages_are_mapped_and_explained(tmp_path: Path) -> None:
    settings = settings_of(flat(tmp_path))
    assert [(c.name, c.unit, c.field) for c in settings.channels] == [("Temp", "°C", "Temp [°C]"), ("p", "", None)]
    assert settings.decode.time_unit == "ms"
    assert settings.decode.fields is not None
    assert (settings.decode.fields.stream, settings.decode.fields.sequence) == ("line", "batch_id")
    assert settings.sequences.end == ("change",)
    assert settings.window.length == 16
    text = (tmp_path / "plant.yaml").read_text()
    assert "setpoint (never changes in the sample (80)" in text
    assert "operator (no number, such as '" in text
    assert all(len(line) <= 130 for line in text.splitlines())


def test_nested_messages_keep_their_paths(tmp_path: Path) -> None:
    settings = settings_of(nested(tmp_path))
    assert [(c.name, c.field) for c in settings.channels] == [("TI-101", None), ("PI-200", "PI-200.pv")]
    assert settings.decode.fields is not None
    assert (settings.decode.fields.stream, settings.decode.fields.values) == ("header.unit", "readings")
    assert settings.sequences.end == ("marker", "change")


def test_names_with_dots_inside_an_object_are_read(tmp_path: Path) -> None:
    data = [{"TIC-1.PV": {"v": x, "q": 192}, "QI-2.PV": {"v": y, "q": 192}} for _, _, _, x, y, _ in rows()]
    messages = [{"batch": b, "time": t, "data": of} for (_, b, t, *_), of in zip(rows(), data, strict=True)]
    settings = settings_of(jsonl(tmp_path / "dots.jsonl", messages))
    assert [c.field for c in settings.channels] == ["TIC-1.PV.v", "QI-2.PV.v"]
    assert settings.decode.fields is not None
    assert settings.decode.fields.values == "data"
    block = block_in(Decoder(settings.decode, settings.channels), Record(0, json.dumps(messages[0]).encode()))
    assert block is not None
    assert block.values[0].tolist() == pytest.approx([rows()[0][3], rows()[0][4]])


def test_a_name_that_no_path_reaches_is_left_out_and_reported(tmp_path: Path) -> None:
    messages = [{"batch": b, "time": t, "x": x, "TI": "on", "TI.PV": {"v": y}} for _, b, t, x, y, _ in rows()]
    settings = settings_of(jsonl(tmp_path / "dots.jsonl", messages))
    assert [c.name for c in settings.channels] == ["x"]
    assert "TI.PV.v (another field stands on the way to it)" in (tmp_path / "plant.yaml").read_text()


def test_units_of_tags_come_from_their_own_field(tmp_path: Path) -> None:
    settings = settings_of(per_channel(tmp_path))
    assert [(c.name, c.unit) for c in settings.channels] == [("TI-101", "°C"), ("PI-200", "bar")]
    assert settings.decode.fields is not None
    assert settings.decode.fields.stream == "asset"
    assert settings.window.resample is not None
    assert settings.window.resample.period == 1_000_000
    assert settings.sequences.allowed_lateness > 0


def test_pauses_end_sequences_without_ids(tmp_path: Path) -> None:
    settings = settings_of(without_ids(tmp_path))
    assert settings.sequences.end == ("gap",)
    assert settings.sequences.gap is not None
    assert 1_000_000 < settings.sequences.gap < 61_000_000
    assert settings.decode.default_stream == "noids"


def test_without_ids_or_pauses_sequences_are_cut_by_length_with_a_note(tmp_path: Path) -> None:
    sample = jsonl(tmp_path / "c.jsonl", [{"time": T0 + i / 2, "a": i % 7, "b": i % 5} for i in range(300)])
    result = init(sample)
    assert "stopgap" in result.stderr
    assert load_plant(tmp_path / "plant.yaml").settings.sequences.end == ("length",)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
@pytest.mark.parametrize("header", ["Tag", "Messgröße"])
def test_text_of_windows_is_read_in_its_encoding(encoding: str, header: str, tmp_path: Path) -> None:
    lines = [f"Anlage;Charge;Zeit;{header};Wert;Einheit"]
    for stream, sequence, time, x, y, _ in rows():
        lines += [f"{stream};{sequence};{time};TI-1;{x};°C".replace(".", ",")]
        lines += [f"{stream};{sequence};{time};PI-2;{y};bar".replace(".", ",")]
    path = tmp_path / "export.csv"
    path.write_text("\n".join(lines) + "\n", encoding=encoding)
    result = init(path)
    settings = load_plant(tmp_path / "plant.yaml").settings
    assert (settings.source.options, settings.decode.decimal) == ({"encoding": encoding}, ",")
    assert [(c.name, c.unit) for c in settings.channels] == [("TI-1", "°C"), ("PI-2", "bar")]
    assert f"was read as {encoding}: if letters look wrong, set source.options.encoding" in result.stderr


def test_bytes_of_another_format_are_left_as_they_are(tmp_path: Path) -> None:
    columns = {"time": [T0 + i for i in range(40)], "x": [i % 7 + 0.5 for i in range(40)], "raw": [b"\xb0"] * 40}
    path = tmp_path / "raw.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    assert settings_of(path).source.options == {}


def test_decimal_commas_and_ids_like_numbers_become_options(tmp_path: Path) -> None:
    assert settings_of(german_csv(tmp_path)).decode.decimal == ","
    (tmp_path / "other").mkdir()
    assert settings_of(ids_like_numbers_csv(tmp_path / "other")).source.options == {"text": ["batch"]}


def test_ids_like_numbers_in_texts_of_json_need_no_option_of_tables(tmp_path: Path) -> None:
    messages = [
        {"batch": f"1.{b}0", "time": iso(T0 + 1000 * b + i), "x": f"{i * 7 % 13}.50"}
        for b in range(1, 5)
        for i in range(30)
    ]
    settings = settings_of(jsonl(tmp_path / "texts.jsonl", messages))
    assert settings.source.options == {}
    assert settings.decode.fields is not None
    assert settings.decode.fields.sequence == "batch"


def test_irregular_samples_get_a_grid(tmp_path: Path) -> None:
    rng = random.Random(0)
    messages = [
        {"batch": f"b{b}", "time": T0 + 1000 * b + 10 * i + rng.uniform(0, 9), "x": rng.random()}
        for b in range(4)
        for i in range(30)
    ]
    settings = settings_of(jsonl(tmp_path / "irregular.jsonl", messages))
    assert settings.window.resample is not None
    assert 8_000_000 <= settings.window.resample.period <= 12_000_000
    assert 24 <= settings.window.length <= 40


def test_what_was_found_is_one_object_for_machines(tmp_path: Path) -> None:
    report = json.loads(init(nested(tmp_path), "--json").stdout)
    assert (report["form"], report["stream"], report["sequence"], report["end"]) == (
        "object",
        "header.unit",
        "batch",
        "done",
    )
    assert report["sequences"]["n_sequences"] == 5
    assert report["checks"] == []


def test_an_existing_config_is_kept_without_force(tmp_path: Path) -> None:
    sample = wide_csv(tmp_path)
    (tmp_path / "plant.yaml").write_text("mine")
    assert isinstance(init(sample).exception, OutputError)
    assert (tmp_path / "plant.yaml").read_text() == "mine"
    assert init(sample, "--force", "--name", "Kessel 7").exit_code == 0
    assert load_plant(tmp_path / "plant.yaml").settings.name == "Kessel_7"


def test_a_sample_whose_name_tells_nothing_of_the_plant_is_named_after_the_folder(tmp_path: Path) -> None:
    for sample, expected in (("train.jsonl", "press_4"), ("mill.jsonl", "mill"), ("*.jsonl", "press_4")):
        folder = tmp_path / sample.removesuffix(".jsonl") / "press 4"
        folder.mkdir(parents=True)
        messages = [{"batch": f"b{b}", "time": T0 + 100 * b + i, "x": i % 7} for b in range(4) for i in range(30)]
        jsonl(folder / sample.replace("*", "day"), messages)
        said = init(folder / sample).stdout
        settings = load_plant(folder / "plant.yaml").settings
        assert (settings.name, settings.decode.default_stream) == (expected, expected)
        assert f"set source.url to the data to judge, and model.recordings to the sample: {sample}\n" in said


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("gone.csv", None, "no such file"),
        ("empty.csv", "", "no record"),
        ("odd.jsonl", "hello\nworld\n", "is a message"),
        ("odd.npz", "no archive", "NumPy archive"),
        ("odd.txt", "x", "format"),
        ("texts.jsonl", '{"a": "x", "time": 1772352930}\n{"a": "y", "time": 1772352931}\n', "nothing numeric"),
        ("notime.csv", "a,b\n1.5,2\n1.4,3\n2.2,1\n", "seconds since the sequence's start"),
        ("slashed.csv", "time,x\n01/03/2026 08:00:00,1\n01/03/2026 08:00:01,2\n", "choose one"),
        ("week.csv", "time,x\n2026-W09-7 08:00:00,1\n2026-W09-7 08:00:01,2\n", "fields: time, x"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_writes_nothing(
    tmp_path: Path, name: str, content: str | None, word: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    result = init(tmp_path / name)
    assert isinstance(result.exception, SourceError)
    assert word in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not (tmp_path / "plant.yaml").exists()


def anything(rng: random.Random, depth: int = 0) -> Any:
    kinds: list[Any] = [
        None,
        True,
        rng.random(),
        rng.randint(-5, 10 ** rng.randint(1, 30)),
        "x",
        "",
        "1.5",
        T0,
        iso(T0),
    ]
    if depth < 3:
        names = ["time", "values", "end", "batch", "tag", "value", "a", "a.b", "ä [°C]", "times", "stream"]
        kinds += [{rng.choice(names): anything(rng, depth + 1) for _ in range(rng.randint(0, 6))} for _ in range(3)]
        kinds.append([anything(rng, depth + 1) for _ in range(rng.randint(0, 3))])
    return rng.choice(kinds)


@pytest.mark.parametrize("seed", range(150))
def test_no_sample_makes_it_crash(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    one = anything(rng)
    messages = [one if rng.random() < 0.6 else anything(rng) for _ in range(rng.randint(1, 12))]
    result = init(jsonl(tmp_path / "fuzz.jsonl", messages))
    if result.exception is not None:
        assert isinstance(result.exception, StreamadError), result.exception
    else:
        load_plant(tmp_path / "plant.yaml")


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("Temp [°C]", "°C"), ("Druck (bar)", "bar"), ("temp_c", ""), ("bar", ""), ("x (1)", ""),
    ],
)  # fmt: skip
def test_units_are_read_from_names_only_if_they_stand_in_brackets(name: str, unit: str) -> None:
    assert unit_of(name) == unit


def test_channel_names_fit_the_config_and_differ() -> None:
    names = channel_names(["Öl/Temp [°C]", "Öl Temp", "温度", "x" * 90, ".hidden", "a.value", "a"])
    assert names[:3] == ["Oel_Temp", "Oel_Temp_2", "ch02"]
    assert len(set(names)) == len(names)
    assert all(re.match(NAME_PATTERN, name) for name in names)


def test_umlauts_are_spelled_out_and_other_accents_fall() -> None:
    decomposed = unicodedata.normalize("NFD", "Kühlwasser")
    names = channel_names(["Kühlwasser", decomposed, "KÜHLUNG", "Maß", "Größe", "température", "Høyde", "Ångström"])
    assert names == ["Kuehlwasser", "Kuehlwasser_2", "KUEHLUNG", "Mass", "Groesse", "temperature", "Hoyde", "Angstroem"]


def test_classes_in_the_recordings_are_offered_for_training(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(5, 2, 15)).astype(np.float32)
    path = tmp_path / "moves.npz"
    np.savez_compressed(path, x=x, len=np.array(LENGTHS), y=np.zeros(5, int), classes=np.array(["good", "bad"]))
    settings = settings_of(path)
    assert settings.model.recordings is None
    text = (tmp_path / "plant.yaml").read_text()
    assert '# recordings: "moves.npz?classes=good"' in text or "# recordings: moves.npz?classes=good" in text


def test_sequences_of_one_length_give_the_window_its_length(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(6, 2, 51)).astype(np.float32)
    np.savez_compressed(tmp_path / "equal.npz", x=x, len=np.full(6, 51))
    assert settings_of(tmp_path / "equal.npz").window.length == 51


def test_dates_without_an_offset_are_read_and_the_guess_of_their_zone_is_noted(tmp_path: Path) -> None:
    rows = "".join(
        f"2026-03-01 08:{m:02d}:{s:02d},B{m // 10},{m % 7 + s / 60:.2f}\n" for m in range(30) for s in (0, 30)
    )
    (tmp_path / "local.csv").write_text("time,batch,temp_c\n" + rows)
    result = init(tmp_path / "local.csv")
    assert result.exit_code == 0
    assert (
        "guessed      the dates in time name no time zone: UTC; if that is wrong, set decode.timezone" in result.stderr
    )
    text = (tmp_path / "plant.yaml").read_text()
    assert "timezone: UTC" in text
    assert "guess" in text[text.index("timezone") :].splitlines()[0]
    assert load_settings(tmp_path / "plant.yaml").decode.timezone == "UTC"


@pytest.mark.parametrize("name", ["Lot No.", "Batch No. ", "Chg.-Nr.", "Chargen-Nr.", "Chargennummer", "header.lot"])
@pytest.mark.parametrize("id_of", ["02{:04d}".format, "A-{}".format])
def test_ids_with_abbreviated_names_are_found(tmp_path: Path, name: str, id_of: Callable[[int], str]) -> None:
    cells = [["OVEN 2", id_of(n // 20), 1_772_000_000 + 30 * n, math.sin(n)] for n in range(200)]
    fields = settings_of(table(tmp_path / "lots.csv", ["Oven", name, "time", "temp_c"], cells)).decode.fields
    assert fields is not None
    assert fields.sequence == name.strip()


def test_messages_without_an_id_between_sequences_are_noted(tmp_path: Path) -> None:
    cells = [["" if n % 25 > 19 else f"A-{n // 25}", 1_772_000_000 + 30 * n, math.sin(n)] for n in range(200)]
    result = init(table(tmp_path / "idle.csv", ["lot", "time", "temp_c"], cells))
    assert "40 of 200 messages have no lot, in runs between two of them, as in pauses: they are left" in result.stderr
    assert "without_id: skip " in (tmp_path / "plant.yaml").read_text()
    sequences = read(tmp_path)
    assert [(one.sequence, one.n_samples) for one in sequences] == [(f"A-{n}", 20) for n in range(8)]


def test_messages_without_an_id_inside_sequences_end_none(tmp_path: Path) -> None:
    cells = [["" if n % 25 in (7, 8) else f"A-{n // 25}", 1_772_000_000 + 30 * n, math.sin(n)] for n in range(200)]
    result = init(table(tmp_path / "holes.csv", ["lot", "time", "temp_c"], cells))
    assert "16 of 200 messages have no lot, some of them inside a sequence, which they would end" in result.stderr
    sequences, counters = asyncio.run(sequences_of(tmp_path / "plant.yaml"))
    assert [one.n_samples for one in sequences] == [23] * 8
    assert not counters.late_samples


@pytest.mark.parametrize("own", [True, False])
def test_pauses_of_one_stream_may_lie_in_a_sequence_of_another(tmp_path: Path, own: bool) -> None:
    """Of two reactors one is always between two batches while the other runs."""
    messages = []
    for n in range(240):
        runs, idle = ("r1", "r2") if n % 40 < 20 else ("r2", "r1")
        for stream, sequence in ((runs, f"B-{n // 20}"), (idle, None)):
            readings = {"temp": math.sin(n), "flow": n % 7 * 1.0}
            named = {"stream": stream, "sequence": sequence, "time": T0 + n, "values": readings}
            messages.append(named if own else {"reactor": stream, "lot": sequence, "ts": T0 + n, **readings})
    init(jsonl(tmp_path / "two.jsonl", messages))
    assert "without_id: skip " in (tmp_path / "plant.yaml").read_text()
    assert sorted(one.sequence for one in read(tmp_path)) == sorted(f"B-{n}" for n in range(12))


def test_if_no_record_can_be_read_nothing_is_written(tmp_path: Path) -> None:
    messages = [{"stream": "r1", "sequence": ["a"], "time": T0 + n, "values": {"temp": n % 7}} for n in range(20)]
    result = init(jsonl(tmp_path / "odd.jsonl", messages))
    assert isinstance(result.exception, SourceError)
    assert str(result.exception) == (
        "none of 20 records can be read: sequence: must be text or a whole number, got a list"
    )
    assert not (tmp_path / "plant.yaml").exists()


@pytest.mark.parametrize("is_for_machines", [False, True])
def test_at_a_terminal_it_shows_what_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_for_machines: bool
) -> None:
    console = Console(file=StringIO(), force_terminal=True, color_system=None, width=100)
    monkeypatch.setattr("streamad.commands.shared.console.err", console)
    cells = [[f"A-{n // 25}", 1_772_000_000 + 30 * n, math.sin(n)] for n in range(100)]
    init(table(tmp_path / "day.csv", ["lot", "time", "temp_c"], cells), *["--json"] * is_for_machines)
    assert isinstance(console.file, StringIO)
    assert ("checking the config" in console.file.getvalue()) is not is_for_machines


def test_the_zone_of_dates_may_be_given(tmp_path: Path) -> None:
    cells = [[f"A-{n // 25}", f"2026-03-01 {8 + n // 60:02d}:{n % 60:02d}:00", math.sin(n)] for n in range(100)]
    sample = table(tmp_path / "local.csv", ["lot", "time", "temp_c"], cells)
    result = init(sample, "--timezone", "Europe/Berlin")
    assert result.exit_code == 0, result.output
    assert "name no time zone" not in result.stderr
    assert load_settings(tmp_path / "plant.yaml").decode.timezone == "Europe/Berlin"
    (tmp_path / "plant.yaml").unlink()
    wrong = init(sample, "--timezone", "Berlin")
    assert wrong.exit_code != 0
    assert "--timezone: no time zone 'Berlin'" in str(wrong.exception)
    assert not (tmp_path / "plant.yaml").exists()


@pytest.mark.parametrize("word", ["oven", "line", "kettle", "mixer", "Kessel", "Mischer", "Ofen", "Linie", "Anlage"])
def test_machines_have_many_names(tmp_path: Path, word: str) -> None:
    cells = [["M1", f"A-{n // 25}", 1_772_000_000 + 30 * n, math.sin(n)] for n in range(100)]
    init(table(tmp_path / "day.csv", [word, "lot", "time", "temp_c"], cells))
    fields = load_settings(tmp_path / "plant.yaml").decode.fields
    assert fields is not None
    assert fields.stream == word


def test_a_list_without_numbers_is_named_with_the_way_out(tmp_path: Path) -> None:
    notes = [[{"by": "A. B.", "text": f"note {n}"}] for n in range(60)]
    messages = [{"lot": f"A-{n // 20}", "ts": T0 + n, "notes": found} for n, found in enumerate(notes)]
    result = init(jsonl(tmp_path / "list.jsonl", messages))
    assert isinstance(result.exception, SourceError)
    assert "notes holds a list of objects" in str(result.exception)
    init(jsonl(tmp_path / "part.jsonl", [{**message, "ph": 7 + n % 5} for n, message in enumerate(messages)]))
    assert "# Left out: notes (a list of objects" in (tmp_path / "plant.yaml").read_text()


def test_whole_numbers_with_a_point_are_ids_and_fractions_are_none(tmp_path: Path) -> None:
    """A table with empty cells has 1042.0 for 1042."""
    columns = {
        "lot": [None if n % 25 > 19 else float(1_042 + n // 25) for n in range(100)],
        "time": [T0 + 30.0 * n for n in range(100)],
        "temp_c": [math.sin(n) for n in range(100)],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "day.parquet")
    init(tmp_path / "day.parquet")
    assert "text" not in load_settings(tmp_path / "plant.yaml").source.options
    assert [one.sequence for one in read(tmp_path)] == ["1042", "1043", "1044", "1045"]
    (tmp_path / "plant.yaml").unlink()
    messages = [{"lot": n // 20 + 0.5, "ts": T0 + n, "temp": math.sin(n), "ph": n % 5} for n in range(60)]
    result = init(jsonl(tmp_path / "halves.jsonl", messages))
    assert isinstance(result.exception, SourceError)
    assert str(result.exception).startswith("lot: ids must be text or whole numbers")
    assert not (tmp_path / "plant.yaml").exists()


def test_names_in_an_archive_are_found_whatever_the_options_of_its_url(tmp_path: Path) -> None:
    named = npz(tmp_path)
    assert init(Path(f"{named}?stream=press")).exit_code == 0
    assert [channel.name for channel in load_settings(tmp_path / "plant.yaml").channels] == ["ax", "gyro"]
    (tmp_path / "strokes").write_bytes(named.read_bytes())  # the option says the format, not the ending
    assert init(tmp_path / "strokes?format=npz", "--force").exit_code == 0
    assert [channel.name for channel in load_settings(tmp_path / "plant.yaml").channels] == ["ax", "gyro"]


def days(folder: Path, *, overlap: bool) -> None:
    """Write the rows of two files, named so that their paths are not in order, or of two files side by side."""
    folder.mkdir()
    cells = [[stream, batch, iso(time), *readings] for stream, batch, time, *readings, _ in rows()]
    parts = [cells[::2], cells[1::2]] if overlap else [cells[:20], cells[20:]]
    for number, part in zip((9, 10), parts, strict=True):
        table(folder / f"day-{number}.csv", ["unit", "batch", "time", "temp", "pressure"], part)


def test_files_that_continue_each_other_are_joined(tmp_path: Path) -> None:
    days(tmp_path / "in", overlap=False)
    settings = settings_of(tmp_path / "in")
    assert settings.source.options == {"files": "joined"}
    found = "the 2 files are taken as one recording: stream reactor-1 lies in 2 of them (source.options.files: joined)"
    assert found in (tmp_path / "plant.yaml").read_text().replace("\n# ", " ")
    sequences, _ = asyncio.run(sequences_of(tmp_path / "plant.yaml"))
    assert sorted(sequence.n_samples for sequence in sequences) == sorted(LENGTHS)


def test_files_side_by_side_stay_separate(tmp_path: Path) -> None:
    days(tmp_path / "in", overlap=True)
    assert settings_of(tmp_path / "in").source.options == {}


def test_an_export_out_of_order_is_sorted_by_its_reader(tmp_path: Path) -> None:
    """Rows of one column after the other, and rows in any order: no lateness of hours is asked for."""
    cells = [[stream, batch, iso(time), *readings] for stream, batch, time, *readings, _ in rows()]
    random.Random(5).shuffle(cells)
    table(tmp_path / "export.csv", ["unit", "batch", "time", "temp", "pressure"], cells)
    settings = settings_of(tmp_path / "export.csv")
    assert settings.source.options == {"sort": True}
    assert settings.sequences.allowed_lateness == 0
    assert "the sample is out of order in time" in (tmp_path / "plant.yaml").read_text().replace("\n# ", " ")
    sequences, counters = asyncio.run(sequences_of(tmp_path / "plant.yaml"))
    assert sorted(sequence.n_samples for sequence in sequences) == sorted(LENGTHS)
    assert not counters.late_samples


def test_samples_that_come_a_little_late_are_waited_for(tmp_path: Path) -> None:
    cells = [[stream, batch, iso(time), *readings] for stream, batch, time, *readings, _ in rows()]
    for i in range(3, 9, 3):
        cells[i], cells[i + 2] = cells[i + 2], cells[i]
    settings = settings_of(table(tmp_path / "late.csv", ["unit", "batch", "time", "temp", "pressure"], cells))
    assert settings.source.options == {}
    assert settings.sequences.allowed_lateness == 2_000_000


def test_text_of_json_in_the_elements_of_a_list_is_refused_with_what_to_write(tmp_path: Path) -> None:
    messages = [
        {"unit": "R1", "batch": f"B{n // 20}", "list": [{"t": 1_772_000_000 + n, "d": json.dumps({"temp": n})}]}
        for n in range(60)
    ]
    (tmp_path / "day.jsonl").write_text("".join(json.dumps(message) + "\n" for message in messages), encoding="utf-8")
    refused = init(tmp_path / "day.jsonl")
    assert refused.exit_code == 1
    assert "name a text of JSON in decode.fields.nested" in str(refused.exception)
