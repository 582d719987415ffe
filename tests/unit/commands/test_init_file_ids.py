"""streamad init on folders with one sequence a file: the file's name is the id."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.shared.figures.labels import LabelOptions
from streamad.commands.shared.plants import load_plant
from streamad.runtime.wiring import source_for
from streamad.settings.plant_yaml import Settings
from tests.unit.commands.test_init import LENGTHS, jsonl, rows, sequences_of, settings_of, table

NAMES = [f"B-{1000 + number}" for number in range(len(LENGTHS))]


def batches() -> dict[str, list[list[Any]]]:
    """Time and two readings of each batch."""
    return {name: [[t, x, y] for _, batch, t, x, y, _ in rows() if batch == name] for name in NAMES}


def write_csv(folder: Path, cells: dict[str, list[list[Any]]]) -> None:
    folder.mkdir()
    for name, part in cells.items():
        table(folder / f"{name}.csv", ["time", "temp", "pressure"], part)


def read_back(folder: Path) -> tuple[Settings, dict[str, int]]:
    """Run init and check on the folder; return the settings and the number of samples of each sequence."""
    settings = settings_of(folder)
    config = folder.parent / "plant.yaml"
    checked = CliRunner().invoke(app, ["check", "-c", str(config), "--fast"])
    assert checked.stdout.splitlines()[-1] == "all checks passed", checked.stdout
    sequences, counters = asyncio.run(sequences_of(config))
    assert not counters.late_samples
    assert not counters.dead_letters
    return settings, {sequence.sequence: sequence.n_samples for sequence in sequences}


EXPECTED = dict(zip(NAMES, LENGTHS, strict=True))


def test_one_csv_a_batch_gets_its_ids_from_the_files(tmp_path: Path) -> None:
    write_csv(tmp_path / "in", batches())
    settings, found = read_back(tmp_path / "in")
    assert found == EXPECTED
    assert (settings.decode.sequence_from, settings.sequences.end) == ("file", ("change",))
    assert settings.source.options == {"files": "joined"}
    text = (tmp_path / "plant.yaml").read_text().replace("\n# ", " ")
    assert "each of the 5 files was taken for one sequence, whose id is the file's name" in text
    assert "the newest file's sequence waits until the next file is there" in text


def test_batches_whose_names_are_not_in_order_stay_separate(tmp_path: Path) -> None:
    renamed = {f"{9 - number}-run": part for number, part in enumerate(batches().values())}
    write_csv(tmp_path / "in", renamed)
    settings, found = read_back(tmp_path / "in")
    assert found == {f"{9 - number}-run": length for number, length in enumerate(LENGTHS)}
    assert (settings.source.options, settings.sequences.allowed_lateness) == ({}, 0)


def test_times_that_begin_anew_in_every_file_are_relative(tmp_path: Path) -> None:
    write_csv(tmp_path / "in", {name: [[t - part[0][0], x, y] for t, x, y in part] for name, part in batches().items()})
    settings, found = read_back(tmp_path / "in")
    assert found == EXPECTED
    assert settings.decode.time == "relative"


def test_parquet_and_json_lines(tmp_path: Path) -> None:
    for name, part in batches().items():
        (tmp_path / "json").mkdir(exist_ok=True)
        (tmp_path / "table").mkdir(exist_ok=True)
        jsonl(tmp_path / "json" / f"{name}.jsonl", [{"ts": t, "temp": x, "p": y} for t, x, y in part])
        columns = dict(zip(("ts", "temp", "p"), zip(*part, strict=True), strict=True))
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "table" / f"{name}.parquet")
    assert read_back(tmp_path / "json")[1] == EXPECTED
    (tmp_path / "plant.yaml").unlink()
    assert read_back(tmp_path / "table")[1] == EXPECTED


def cut_in_two(cells: dict[str, list[list[Any]]]) -> dict[str, list[list[Any]]]:
    """Days: two batches in a file, with a pause between."""
    return {"day-1": [*cells["B-1000"], *cells["B-1001"]], "day-2": [*cells["B-1002"], *cells["B-1003"]]}


def continuous(cells: dict[str, list[list[Any]]]) -> dict[str, list[list[Any]]]:
    """Hours of one course without a pause."""
    return {name: [[n * 100 + i, i % 7, i % 5] for i in range(100)] for n, name in enumerate(cells)}


def side_by_side(cells: dict[str, list[list[Any]]]) -> dict[str, list[list[Any]]]:
    """Two files of the same time."""
    return {"left": cells["B-1000"], "right": cells["B-1000"]}


@pytest.mark.parametrize("change", [cut_in_two, continuous, side_by_side])
def test_other_folders_do_not(change: Any, tmp_path: Path) -> None:
    write_csv(tmp_path / "in", change(batches()))
    assert settings_of(tmp_path / "in").decode.sequence_from == "message"


def test_the_sequences_join_with_a_table_of_truth(tmp_path: Path) -> None:
    write_csv(tmp_path / "in", batches())
    settings_of(tmp_path / "in")
    truth = table(tmp_path / "truth.csv", ["sequence", "label"], [[name, int(name == "B-1003")] for name in NAMES])
    plant = load_plant(tmp_path / "plant.yaml")
    labels = LabelOptions(str(truth)).read(source_for(plant), plant.settings.decode)
    assert labels is not None
    sequences, _ = asyncio.run(sequences_of(tmp_path / "plant.yaml"))
    assert [labels.is_anomalous(one.stream, one.sequence) for one in sequences] == [False, False, False, True, False]
