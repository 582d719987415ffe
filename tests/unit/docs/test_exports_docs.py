"""The exports of the page are read by ``streamad init`` as the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from examples.exports import FORMATS, write_exports
from streamad.cli import app
from streamad.commands.shared.plants import load_plant

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
    assert settings.source.options == {"encoding": "cp1252", "decimal": ",", "files": "joined"}
    assert settings.decode.missing == ("Bad", "I/O Timeout")
    assert settings.decode.time_format == "%d.%m.%Y %H:%M:%S"
    assert 'options: {encoding: cp1252, decimal: ",", files: joined}' in PAGE


def test_dates_in_two_columns_are_refused_as_the_page_says(exports: Path) -> None:
    result = CliRunner().invoke(app, ["init", str(exports / "split-dates" / "train"), "--out", str(exports / "x.yaml")])
    assert str(result.exception) in PAGE
