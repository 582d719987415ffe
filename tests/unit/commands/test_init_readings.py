"""streamad init: texts and numbers that mean missing, and qualities, are found and proposed; the config reads them."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.init.facts.columns import Column
from streamad.commands.init.rules.readings import missing_number, missing_texts
from streamad.commands.shared.plants import load_plant
from streamad.errors import ConfigError, UsageError
from streamad.runtime.recordings import read_sequences
from streamad.runtime.wiring import source_for
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.metrics import Counters
from streamad.types import FinishedSequence

T0 = 1_772_352_930


def cells(n: int = 90) -> list[tuple[str, int, float, float]]:
    """Return batch, time and two readings of three batches."""
    rng = random.Random(3)
    return [(f"B-{i // 30}", T0 + i, round(80 + rng.random(), 3), round(3 + rng.random() / 10, 3)) for i in range(n)]


def init(folder: Path, name: str, text: str) -> tuple[Settings, str, Counters, list[FinishedSequence]]:
    """Run init on a file and return the settings, what was printed, and what the config reads."""
    (folder / name).write_text(text)
    config = folder / "plant.yaml"
    result = CliRunner().invoke(app, ["init", str(folder / name), "--out", str(config)])
    assert result.exit_code == 0, result.output or result.exception
    checked = CliRunner().invoke(app, ["check", "-c", str(config), "--fast"])
    assert checked.stdout.splitlines()[-1] == "all checks passed", checked.stdout

    async def read() -> tuple[Counters, list[FinishedSequence]]:
        plant, counters = load_plant(config), Counters()
        return counters, [one async for one in read_sequences(plant.settings, source_for(plant), plant.clock, counters)]

    counters, sequences = asyncio.run(read())
    assert not counters.dead_letters
    assert not counters.late_samples
    return load_plant(config).settings, result.output, counters, sequences


def finite(sequences: list[FinishedSequence]) -> list[int]:
    """Return how many readings of each channel are there."""
    counts: list[int] = np.isfinite(np.concatenate([one.values for one in sequences])).sum(axis=0).tolist()
    return counts


def test_texts_in_place_of_numbers_are_named(tmp_path: Path) -> None:
    rows = [list(map(str, row)) for row in cells()]
    rows[4][2], rows[5][2], rows[60][3], rows[61][3] = "Bad", "I/O Timeout", "#N/A", "No Data"
    text = "batch,time,temp,press\n" + "".join(",".join(row) + "\n" for row in rows)
    settings, printed, counters, sequences = init(tmp_path, "day.csv", text)
    assert settings.decode.missing == ("Bad", "I/O Timeout", "#N/A", "No Data")
    assert "'Bad', 'I/O Timeout', '#N/A', 'No Data' instead of numbers: taken for missing values" in printed
    assert counters.bad_values == {}
    assert finite(sequences) == [88, 88]


def test_digits_with_leading_zeros_among_numbers_are_no_text_that_means_missing(tmp_path: Path) -> None:
    rows = [list(map(str, row)) for row in cells()]
    rows[4][2], rows[5][2] = "0081", "Bad"
    text = "batch,time,temp,press\n" + "".join(",".join(row) + "\n" for row in rows)
    settings, _, counters, _ = init(tmp_path, "day.csv", text)
    assert settings.decode.missing == ("Bad",)
    assert counters.bad_values == {}


def test_what_init_finds_does_not_depend_on_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "batch,time,temp\n" + "".join(f"{one},{at},{temp}\n" for one, at, temp, _ in cells())
    (tmp_path / "day.csv").write_text(text)

    def found(out: str) -> str:
        result = CliRunner().invoke(app, ["init", str(tmp_path / "day.csv"), "--out", str(tmp_path / out)])
        assert result.exit_code == 0, result.output or result.exception
        return (tmp_path / out).read_text()

    before = found("a.yaml")
    monkeypatch.setenv("STREAMAD_DECODE__TIME_UNIT", "ms")
    assert found("b.yaml") == before


def test_a_wrong_variable_of_the_environment_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "batch,time,temp\n" + "".join(f"{one},{at},{temp}\n" for one, at, temp, _ in cells())
    (tmp_path / "day.csv").write_text(text)
    monkeypatch.setenv("STREAMAD_ALERTS__FALSE_ALARM_RATE", "7")
    result = CliRunner().invoke(app, ["init", str(tmp_path / "day.csv"), "--out", str(tmp_path / "a.yaml")])
    assert isinstance(result.exception, ConfigError)
    assert "environment variable STREAMAD_ALERTS__FALSE_ALARM_RATE: Input should be less than 1" in str(
        result.exception
    )


def test_a_guess_that_the_config_refuses_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad.commands.init.lines.missing_texts", lambda _: ("81",))
    text = "batch,time,temp\n" + "".join(f"{one},{at},{temp}\n" for one, at, temp, _ in cells())
    (tmp_path / "day.csv").write_text(text)
    result = CliRunner().invoke(app, ["init", str(tmp_path / "day.csv"), "--out", str(tmp_path / "a.yaml")])
    assert isinstance(result.exception, ConfigError)
    assert "the config that the sample" in str(result.exception)
    assert "decode.missing: '81' is read as a number" in str(result.exception)


def test_a_number_far_from_all_others_means_missing_in_its_channel(tmp_path: Path) -> None:
    rows = [list(map(str, row)) for row in cells()]
    for i in (4, 5, 60):
        rows[i][2] = "-9999"
    text = "batch,time,temp,press\n" + "".join(",".join(row) + "\n" for row in rows)
    settings, printed, counters, sequences = init(tmp_path, "day.csv", text)
    assert [channel.missing for channel in settings.channels] == [(-9999.0,), ()]
    assert "-9999 of temp means missing" in printed
    assert counters.bad_values == {}
    assert finite(sequences) == [87, 90]


@pytest.mark.parametrize(
    ("others", "fill", "found"),
    [
        ([1.0, 2.0, 3.0], -9999, True),
        ([1.0, 2.0, 3.0], -999.25, True),
        ([1.0, 2.0, 3.0], 65535, True),
        ([1.0, 2.0, 3.0], 1e36, True),
        ([1.0, 2.0, 3.0], 3.4028234663852886e38, True),
        ([1.0, 2.0, 3.0], -10000, False),  # no usual fill value
        ([900.0, 950.0, 990.0], 999, False),  # it lies among the readings
        ([0.0, 20_000.0, 40_000.0], 65535, False),
        ([5.0], 9999, False),  # too few to tell
        ([5.0, 5.0], 9999, True),
    ],
)
def test_which_numbers_are_taken_for_missing(others: list[float], fill: float, found: bool) -> None:
    assert missing_number(Column("x", values=[*others, fill])) == (fill if found else None)


def test_many_different_texts_are_not_listed() -> None:
    column = Column("x", values=[*range(100), *(f"text {i}" for i in range(13))])
    assert missing_texts([column]) == ()
    assert missing_texts([Column("x", values=[1, 2, "bad", "Bad", "NaN", "n/a", "x" * 41])]) == ("bad",)


def test_the_quality_of_long_exports(tmp_path: Path) -> None:
    lines = ["batch;ts;tag;value;quality\n"]
    for i, (batch, time, temp, press) in enumerate(cells()):
        for tag, value in (("TI-1", temp), ("PI-2", press)):
            lines.append(f"{batch};{time};{tag};{value};{0 if i % 20 == 0 else 192}\n")
    settings, _, counters, sequences = init(tmp_path, "long.csv", "".join(lines))
    assert settings.decode.quality is not None
    assert (settings.decode.quality.field, settings.decode.quality.good) == ("quality", (192,))
    assert counters.bad_values == {"TI-1": {"quality": 5}, "PI-2": {"quality": 5}}
    assert finite(sequences) == [85, 85]


def test_a_quality_beside_each_channel(tmp_path: Path) -> None:
    lines = ["batch,time,TI-1,TI-1_Q,PI-2,PI-2 Status\n"]
    for i, (batch, time, temp, press) in enumerate(cells()):
        lines.append(f"{batch},{time},{temp},{0 if i == 7 else 192},{press},{'Bad' if i == 8 else 'Good'}\n")
    settings, _, counters, sequences = init(tmp_path, "wide.csv", "".join(lines))
    found = {channel.name: channel.quality for channel in settings.channels}
    assert {name: None if of is None else (of.field, of.good) for name, of in found.items()} == {
        "TI-1": ("TI-1_Q", (192,)),
        "PI-2": ("PI-2 Status", ("Good",)),
    }
    assert counters.bad_values == {"TI-1": {"quality": 1}, "PI-2": {"quality": 1}}
    assert finite(sequences) == [89, 89]


def test_a_quality_inside_nested_readings(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [
        {
            "batch": batch,
            "time": time,
            "readings": {"TI-1": {"v": temp, "q": "Bad" if i == 3 else "Good"}, "PI-2": {"v": press, "q": "Good"}},
        }
        for i, (batch, time, temp, press) in enumerate(cells())
    ]
    text = "".join(json.dumps(message) + "\n" for message in messages)
    settings, _, counters, sequences = init(tmp_path, "nested.jsonl", text)
    assert [channel.quality is not None for channel in settings.channels] == [True, True]
    assert counters.bad_values == {"TI-1": {"quality": 1}}
    assert finite(sequences) == [89, 90]


def test_the_status_of_a_machine_is_no_quality(tmp_path: Path) -> None:
    lines = ["batch,time,temp,press,status\n"]
    for i, (batch, time, temp, press) in enumerate(cells()):
        lines.append(f"{batch},{time},{temp},{press},{'ALARM' if i == 7 else 'OK'}\n")
    settings, *_ = init(tmp_path, "wide.csv", "".join(lines))
    assert settings.decode.quality is None
    assert [channel.quality for channel in settings.channels] == [None, None]


def test_a_quality_of_unknown_values_is_a_guess(tmp_path: Path) -> None:
    lines = ["batch,time,temp,press,quality\n"]
    for i, (batch, time, temp, press) in enumerate(cells()):
        lines.append(f"{batch},{time},{temp},{press},{1 if i % 9 else 7}\n")
    settings, printed, *_ = init(tmp_path, "wide.csv", "".join(lines))
    assert settings.decode.quality is not None
    assert settings.decode.quality.good == (1,)
    assert "quality was taken for the quality of readings, its most frequent value 1 for good" in printed


def test_a_german_export_in_long_form_over_two_days(tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    rng = random.Random(5)
    for day in (23, 24):
        lines = ["Zeitstempel;Anlage;Charge;Messstelle;Wert;Qualität;Bemerkung\n"]
        for i in range(240):
            for tag, value in (("TI-101", 80 + rng.random()), ("PI-200", 3 + rng.random())):
                is_bad = i % 60 == 7
                written = "Bad" if is_bad and i % 120 == 7 else f"{value:.3f}".replace(".", ",")
                time = f"{day}.03.2026 {6 + i // 60:02d}:{i % 60:02d}:00"
                remark = "Störung" if i == 3 else ""
                lines.append(f"{time};K1;C-{day}-{i // 60};{tag};{written};{0 if is_bad else 192};{remark}\n")
        (tmp_path / "export" / f"anlage_{day}.csv").write_bytes("".join(lines).encode("cp1252"))
    config = tmp_path / "plant.yaml"
    sample = f"{tmp_path}/export?encoding=cp1252"
    result = CliRunner().invoke(app, ["init", sample, "--out", str(config)])
    assert result.exit_code == 0, result.output or result.exception
    settings = load_plant(config).settings
    assert [channel.name for channel in settings.channels] == ["TI-101", "PI-200"]
    decode = settings.decode
    assert (decode.time_format, decode.missing) == ("%d.%m.%Y %H:%M:%S", ("Bad",))
    assert decode.quality is not None
    assert (decode.quality.field, decode.quality.good) == ("Qualität", (192,))

    async def read() -> tuple[Counters, list[int]]:
        plant, counters = load_plant(config), Counters()
        found = read_sequences(plant.settings, source_for(plant), plant.clock, counters)
        return counters, [one.n_samples async for one in found]

    counters, lengths = asyncio.run(read())
    assert lengths == [60] * 8
    assert counters.bad_values == {"TI-101": {"quality": 4}, "PI-200": {"quality": 4}}
    assert not counters.dead_letters
    assert not counters.late_samples


FLAGS: list[tuple[str, Any, Any, tuple[Any, ...]]] = [
    ("ok", True, False, (True,)),
    ("valid", 1, 0, (1,)),
    ("bad", False, True, (False,)),
    ("quality", "good", "bad", ("good",)),
    ("quality", True, False, (True,)),
    ("status", "Good", "Uncertain", ("Good",)),
]


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("is_nested", [True, False])
def test_flags_beside_values_are_their_quality(
    tmp_path: Path, flag: tuple[str, Any, Any, tuple[Any, ...]], is_nested: bool
) -> None:
    word, good, bad, found = flag
    messages = []
    for i, (batch, time, temp, press) in enumerate(cells()):
        quality = bad if i in (3, 4) else good
        nested = {"signals": {"temp": {"v": temp, word: quality}, "ph": {"v": press, word: good}}}
        flat = {"temp": temp, f"temp_{word}": quality, "ph": press, f"ph_{word}": good}
        messages.append({"batch": batch, "time": time, **(nested if is_nested else flat)})
    text = "".join(json.dumps(message) + "\n" for message in messages)
    settings, printed, counters, sequences = init(tmp_path, "flags.jsonl", text)
    assert [channel.quality.good for channel in settings.channels if channel.quality] == [found, found]
    assert counters.bad_values == {"temp": {"quality": 2}}
    assert finite(sequences) == [88, 90]
    assert "no number" not in printed


@pytest.mark.parametrize(("good", "bad"), [("true", "false"), ("yes", "no"), ("1", "0")])
def test_flags_in_a_table(tmp_path: Path, good: str, bad: str) -> None:
    lines = ["batch,time,temp,tempOk,press,press_ok\n"]
    for i, (batch, time, temp, press) in enumerate(cells()):
        lines.append(f"{batch},{time},{temp},{bad if i == 7 else good},{press},{good}\n")
    settings, _, counters, sequences = init(tmp_path, "wide.csv", "".join(lines))
    assert [channel.quality.field for channel in settings.channels if channel.quality] == ["tempOk", "press_ok"]
    assert counters.bad_values == {"temp": {"quality": 1}}
    assert finite(sequences) == [89, 90]


def test_a_flag_of_the_whole_message_is_no_quality(tmp_path: Path) -> None:
    """It may be the result of a test of the part: the readings of bad parts are wanted."""
    messages = [
        {"batch": batch, "time": time, "temp": temp, "ph": press, "ok": i % 30 > 4}
        for i, (batch, time, temp, press) in enumerate(cells())
    ]
    settings, *_ = init(tmp_path, "wide.jsonl", "".join(json.dumps(message) + "\n" for message in messages))
    assert settings.decode.quality is None
    assert [channel.quality for channel in settings.channels] == [None, None]


def test_the_quality_of_a_channel_with_a_unit_is_not_that_of_all(tmp_path: Path) -> None:
    lines = ["batch,time,Temp [F],press,temp_quality\n"]
    for i, (batch, time, temp, press) in enumerate(cells()):
        lines.append(f"{batch},{time},{temp},{press},{'Bad' if i == 7 else 'Good'}\n")
    settings, _, counters, _ = init(tmp_path, "wide.csv", "".join(lines))
    assert settings.decode.quality is None
    assert [channel.quality.field if channel.quality else None for channel in settings.channels] == [
        "temp_quality",
        None,
    ]
    assert counters.bad_values == {"Temp": {"quality": 1}}


def test_a_sample_that_is_followed_has_no_end_and_is_refused(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("batch,time,temp\nB-1,1772352930,1.5\n")
    sample = f"{tmp_path / 'day.csv'}?follow=true"
    result = CliRunner().invoke(app, ["init", sample, "--out", str(tmp_path / "a.yaml")])
    assert isinstance(result.exception, UsageError)
    assert "a sample must end" in str(result.exception)


@pytest.mark.parametrize("name", ["batch_id", "lot", "batch.no"])
def test_whole_numbers_are_the_ids_of_interleaved_reactors(name: str, tmp_path: Path) -> None:
    rng = random.Random(4)
    lines = ["{" + f'"reactor": "R{i % 2}", "time": {T0 + i}, "{name}": {100 + (i // 60) * 2 + i % 2}, '
             f'"temp": {80 + rng.random():.3f}' + "}\n" for i in range(1200)]  # fmt: skip
    settings, _, _, sequences = init(tmp_path, "day.jsonl", "".join(lines))
    assert settings.decode.fields is not None
    assert (settings.decode.fields.stream, settings.decode.fields.sequence) == ("reactor", name)
    assert [channel.name for channel in settings.channels] == ["temp"]
    assert len(sequences) == 40


def test_a_reading_that_is_named_like_an_id_and_comes_back_stays_a_channel(tmp_path: Path) -> None:
    lines = [f'{{"time": {T0 + i}, "cycle_no": {i % 7}, "temp": {80 + i % 5}}}\n' for i in range(600)]
    settings, _, _, _ = init(tmp_path, "day.jsonl", "".join(lines))
    assert [channel.name for channel in settings.channels] == ["cycle_no", "temp"]


# --- numbers with their unit -----------------------------------------------------------------------------------------


def test_units_behind_numbers_are_those_of_the_channels(tmp_path: Path) -> None:
    rows = [
        {"batch": batch, "ts": time, "temp": f"{temp:.3f} °C".replace(".", ","), "press": f"{press:.3f}bar", "no": "7A"}
        for batch, time, temp, press in cells()
    ]
    rows = [{**row, "press": str(row["press"]).replace(".", ",")} for row in rows]
    settings, output, counters, sequences = init_rows(tmp_path, rows)
    assert [(channel.name, channel.unit) for channel in settings.channels] == [("temp", "°C"), ("press", "bar")]
    assert settings.decode.missing == ()
    assert "no: no number, such as '7A'\n" in output
    assert not counters.bad_values
    assert finite(sequences) == [90, 90]


def test_a_reading_in_another_unit_is_no_word_for_missing(tmp_path: Path) -> None:
    rows = [{"batch": batch, "ts": time, "press": f"{press} bar"} for batch, time, _, press in cells()]
    rows[7]["press"] = "3000 mbar"
    sample = tmp_path / "sample.jsonl"
    sample.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = CliRunner().invoke(app, ["init", str(sample), "--out", str(tmp_path / "plant.yaml")])
    assert (
        "1 of press (wrong_type): missing; sample.jsonl at 398: press: must be a number or null, got '3000 mbar'"
        in (result.stderr)
    )
    assert load_plant(tmp_path / "plant.yaml").settings.decode.missing == ()


def test_of_a_few_words_it_is_said_how_they_become_numbers(tmp_path: Path) -> None:
    rows = [
        {"batch": batch, "ts": time, "temp": temp, "mode": ("HEAT", "HOLD")[time % 3 % 2]}
        for batch, time, temp, _ in cells()
    ]
    _, output, _, _ = init_rows(tmp_path, rows)
    assert "mode: no number, such as 'HEAT'; channels[].values gives words numbers" in output


@pytest.mark.parametrize("label", [{"anomalous": ("True", "False")}, {"label": ("leak", "normal")}], ids=str)
def test_a_label_in_words_is_the_truth_and_no_channel_to_be(label: dict[str, tuple[str, str]], tmp_path: Path) -> None:
    ((name, words),) = label.items()
    rows = [{"batch": batch, "ts": time, "temp": temp, name: words[batch == "B-1"]} for batch, time, temp, _ in cells()]
    settings, output, _, _ = init_rows(tmp_path, rows)
    assert [channel.name for channel in settings.channels] == ["temp"]
    assert f"{name}: a label by its name and values: the truth to find, and no reading" in output
    assert "channels[].values" not in output


def test_each_channel_of_a_long_form_has_its_unit(tmp_path: Path) -> None:
    rows = [
        {"batch": batch, "ts": time, "tag": tag, "value": value}
        for batch, time, temp, press in cells()
        for tag, value in (("T", f"{temp} °C"), ("P", f"{press} bar"))
    ]
    settings, _, _, sequences = init_rows(tmp_path, rows)
    assert [(channel.name, channel.unit) for channel in settings.channels] == [("T", "°C"), ("P", "bar")]
    assert finite(sequences) == [90, 90]


def init_rows(folder: Path, rows: list[dict[str, Any]]) -> tuple[Settings, str, Counters, list[FinishedSequence]]:
    return init(folder, "sample.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def test_an_exponent_is_no_unit(tmp_path: Path) -> None:
    text = "batch,time,Temp (°C)\n" + "".join(f"{one},{at},{temp:.4E}\n" for one, at, temp, _ in cells())
    settings, _, _, sequences = init(tmp_path, "day.csv", text)
    assert settings.channels[0].unit == "°C"
    assert finite(sequences) == [90]


def test_the_unit_of_a_channel_in_a_field_beside_it_is_its_unit(tmp_path: Path) -> None:
    lines = [
        {"batch": one, "time": at, "temp": {"val": temp, "unit": "°C"}, "press": press, "press_unit": "bar"}
        for one, at, temp, press in cells()
    ]
    settings, printed, _, _ = init(tmp_path, "day.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert [(channel.name, channel.unit) for channel in settings.channels] == [("temp", "°C"), ("press", "bar")]
    assert "left out" not in printed
    assert settings.decode.default_stream is not None
