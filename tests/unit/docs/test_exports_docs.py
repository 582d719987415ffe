"""The exports of the page are read by ``streamad init`` as the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from examples.exports import FORMATS, write_exports
from streamad.cli import app
from streamad.commands.shared.plants import load_plant
from streamad.settings.decode import FieldSettings

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "guide" / "exports.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports")
    arguments = ["--out", str(folder / "plant"), "--train", "24", "--normal", "2", "--faulty", "1"]
    assert CliRunner().invoke(app, ["simulate", *arguments]).exit_code == 0
    assert len(list(write_exports(folder / "plant", folder))) == len(FORMATS)
    return folder


def test_every_format_is_on_the_page() -> None:
    assert set(re.findall(r"^\$ cd exports/(\S+)$", PAGE, re.MULTILINE)) == set(FORMATS) - {"mes"}


@pytest.mark.parametrize(
    ("sample", "lines"),
    [
        ("german/train", ["stream       Anlage", "sequence     no id in the messages"]),
        ("american/train", ["stream       Unit", "sequence     Batch ID"]),
        ("parquet/train/export.parquet", ["time         timestamp (dates without a UTC offset)"]),
        (
            "split-dates/train",
            ["time         Datum and Uhrzeit (dates such as 06.01.2025 07:00:00 (6 January 2025, 07:00:00))"],
        ),
        ("json/train", ["stream       header.equipment", "sequence     header.lot"]),
        ("mes/train/historian.csv", ["sequence     no id in the messages"]),
    ],
)
def test_init_finds_what_the_page_shows(sample: str, lines: list[str], exports: Path) -> None:
    config = exports / f"{sample.partition('/')[0]}.yaml"
    result = CliRunner().invoke(app, ["init", str(exports / sample), "--out", str(config)])
    assert result.exit_code == 0
    shown = result.stdout.splitlines()
    assert set(lines) <= set(shown)
    assert "channels     7: " in result.stdout
    assert [line for line in lines if line not in PAGE and "mes" not in sample] == []
    checked = CliRunner().invoke(app, ["check", "-c", str(config), "--fast"])
    assert "ok       channels             all 7 have values" in checked.stdout


def test_the_options_of_the_german_export_are_those_of_the_page(exports: Path) -> None:
    config = exports / "options.yaml"
    CliRunner().invoke(app, ["init", str(exports / "german" / "train"), "--out", str(config)])
    settings = load_plant(config).settings
    assert (settings.source.options, settings.decode.decimal) == ({"encoding": "cp1252", "files": "joined"}, ",")
    assert settings.decode.missing == ("Bad", "I/O Timeout")
    assert settings.decode.time_format == "%d.%m.%Y %H:%M:%S"
    assert "options: {encoding: cp1252, files: joined}" in PAGE
    assert 'decimal: ","' in PAGE


def test_the_list_of_readings_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = PAGE.partition("## JSON with a list of readings")[2]
    message = json.loads(section.partition("```json\n")[2].partition("```")[0])
    monkeypatch.chdir(tmp_path)
    readings = [[{**one, "value": one["value"] + n % 7} for one in message["metrics"]] for n in range(40)]
    rows = [{**message, "lot": f"B-{n // 20}", "ts": message["ts"] + n, "metrics": of} for n, of in enumerate(readings)]
    Path("metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = CliRunner().invoke(app, ["init", "metrics.jsonl"])
    assert found.exit_code == 0
    assert "channels     2: temp_c, ph" in found.stdout
    fields = yaml.safe_load(section.partition("```yaml\n")[2].partition("```")[0])["decode"]["fields"]
    assert load_plant(Path("plant.yaml")).settings.decode.fields == FieldSettings(**fields)
