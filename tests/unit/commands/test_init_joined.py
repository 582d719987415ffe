"""streamad init on days of one historian: files that continue each other are joined, however large they are."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.init.reading.joined import Part, continued
from streamad.commands.init.reading.sample import MAX_RECORDS
from streamad.commands.shared.plants import load_plant
from tests.unit.commands.test_init import T0, init, sequences_of, settings_of, table

Rows = list[tuple[str, str, int, float, float]]
BATCH = 400


def rows(n_rows: int, begin: int = 0, of_batch: Callable[[int], str] = "B-{}".format) -> Rows:
    """Return rows of one reactor from ``begin`` on, one a second, batches of 400 s with pauses of 30 s between."""
    found: Rows = []
    for n in range(begin, begin + n_rows):
        time = T0 + n + 30 * (n // BATCH)
        found.append(("K1", of_batch(n // BATCH), time, math.sin(n / 9), n % 7 + 0.5))
    return found


def csv_file(path: Path, of: Rows) -> None:
    table(path.with_suffix(".csv"), ["unit", "batch", "time", "temp", "press"], [list(row) for row in of], ";")


def csv_below_lines(path: Path, of: Rows) -> None:
    csv_file(path, of)
    text = path.with_suffix(".csv").read_text()
    path.with_suffix(".csv").write_text(f"# plant K;;;;\n# by shift 3;;;;\n{text}")


def parquet_file(path: Path, of: Rows) -> None:
    columns = dict(zip(("unit", "batch", "time", "temp", "press"), map(list, zip(*of, strict=True)), strict=True))
    pyarrow.parquet.write_table(pyarrow.table(columns), path.with_suffix(".parquet"))


def jsonl_file(path: Path, of: Rows) -> None:
    lines = (json.dumps(dict(zip(("unit", "batch", "time", "temp", "press"), row, strict=True))) for row in of)
    path.with_suffix(".jsonl").write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("write", [csv_file, csv_below_lines, parquet_file, jsonl_file])
def test_a_batch_over_midnight_is_found_behind_the_beginning_of_a_large_file(
    tmp_path: Path, write: Callable[[Path, Rows], None]
) -> None:
    n_first = MAX_RECORDS + 1_500  # in the middle of a batch
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "day-9", rows(n_first))
    write(tmp_path / "in" / "day-10", rows(1_000, n_first))
    result = init(tmp_path / "in")
    assert result.exit_code == 0, result.output or result.exception
    batch = f"B-{n_first // BATCH}"
    found = f"the 2 files are taken as one recording: sequence {batch} of stream K1 goes on from day-9."
    assert found in result.stderr
    options = load_plant(tmp_path / "plant.yaml").settings.source.options
    assert options == {"files": "joined", **({"header": 3} if write is csv_below_lines else {})}


def test_without_ids_an_unbroken_course_goes_on(tmp_path: Path) -> None:
    n_first = MAX_RECORDS + 1_500
    (tmp_path / "in").mkdir()
    for name, of in (("a", rows(n_first)), ("b", rows(1_000, n_first))):
        table(tmp_path / "in" / f"{name}.csv", ["time", "temp", "press"], [list(row[2:]) for row in of])
    assert settings_of(tmp_path / "in").source.options == {"files": "joined"}


def test_large_files_whose_names_are_not_in_the_order_of_time_stay_separate(tmp_path: Path) -> None:
    n_first = MAX_RECORDS + 1_500
    (tmp_path / "in").mkdir()
    csv_file(tmp_path / "in" / "2", rows(n_first))
    csv_file(tmp_path / "in" / "1", rows(MAX_RECORDS, n_first))
    assert settings_of(tmp_path / "in").source.options == {}


def test_files_whose_ids_begin_anew_stay_separate(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for day in range(3):
        csv_file(tmp_path / "in" / f"day-{day}", rows(2_000, 2_000 * day, lambda n: f"{1 + n % 5}"))
    assert settings_of(tmp_path / "in").source.options == {}


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (Part(10, 20, {"B": (10, 14), "C": (15, 20)}), True),
        (Part(10, 20, {"C": (10, 14), "D": (15, 20)}), True),
        (Part(10, 20, {"C": (10, 14), "B": (15, 20)}), False),  # an id that comes again
        (Part(10, 20, {"A": (10, 14), "C": (15, 20)}), False),
        (Part(8, 20, {"B": (8, 20)}), False),  # times overlap
        (Part(10, 20), True),
    ],
)
def test_which_parts_follow_each_other(second: Part, expected: bool) -> None:
    first = Part(0, 9, {"A": (0, 4), "B": (5, 9)})
    assert continued({"K1": {0: first, 1: second}}) == ("K1" if expected else None)


def halves(folder: Path) -> Path:
    """Write 12 days with batches over midnight and a config that reads the days separately; return the config."""
    (folder / "in").mkdir()
    for day in range(12):
        csv_file(folder / "in" / f"day-{day:02d}", rows(1_000, 1_000 * day))
    init(folder / "in")
    config = folder / "plant.yaml"
    config.write_text(config.read_text().replace("files: joined", "files: separate"))
    return config


def test_check_and_train_name_the_option_for_sequences_cut_by_files(tmp_path: Path) -> None:
    config = halves(tmp_path)
    report = json.loads(CliRunner().invoke(app, ["check", "-c", str(config), "--fast", "--json"]).stdout)
    (found,) = [one for one in report["checks"] if "in several files" in one["message"]]
    assert found["message"] == "6 sequences lie in several files, and each part is judged by itself: B-12 of K1"
    assert found["advice"] == "if one file continues the other, set source.options.files: joined"
    result = CliRunner().invoke(app, ["train", "-c", str(config)])
    assert "if they go on in the next file, set source.options.files: joined" in str(result.exception)


def test_both_parts_of_a_sequence_cut_by_files_are_sequences_as_the_page_says(tmp_path: Path) -> None:
    sequences, _ = asyncio.run(sequences_of(halves(tmp_path)))
    assert [(one.n_samples, one.reason) for one in sequences if one.sequence == "B-2"] == [
        (200, "end_of_input"),
        (200, "change"),
    ]
    page = Path("docs/guide/files.md").read_text().replace("\n  ", " ")
    assert "of a sequence in two separate files each part is judged by itself" in page
