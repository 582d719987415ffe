"""streamad init: a sample reached by any spelling of its path gives a config that reads that file."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.shared.plants import load_plant
from streamad.errors import SourceError

CSV = """time,batch,temp,press
2026-03-01T00:00:00Z,A,1.0,2.5
2026-03-01T00:00:01Z,A,1.1,2.6
2026-03-01T00:00:02Z,B,1.2,2.5
2026-03-01T00:00:03Z,B,1.3,2.7
"""


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("../data/file.csv", "{top}/data/file.csv"),
        ("../../{folder}/plant/file.csv", "file.csv"),
        ("sub/../file.csv", "file.csv"),
        ("./file.csv", "file.csv"),
        ("{top}/plant/../data/file.csv", "{top}/data/file.csv"),
        ("{top}/plant/../plant/file.csv", "file.csv"),
        ("../data", "{top}/data"),
        ("../data/*.csv", "{top}/data/*.csv"),
        ("../data/file.csv?delimiter=,", "{top}/data/file.csv?delimiter=,"),
        ("file:../data/file.csv", "{top}/data/file.csv"),
        ("../link/file.csv", "{top}/link/file.csv"),
        (".", "."),
        ("./mqtt:file.csv", "file:mqtt:file.csv"),
    ],
)
def test_a_sample_elsewhere_is_named_by_a_path_that_the_config_reads(
    given: str, written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert url_written(given, "plant.yaml", tmp_path, monkeypatch) == written.format(top=tmp_path)
    checked = CliRunner().invoke(app, ["check", "-c", "plant.yaml", "--fast"])
    assert checked.stdout.splitlines()[-1] == "all checks passed", checked.stdout


@pytest.mark.parametrize("out", ["sub/../plant.yaml", "{top}/data/../plant/plant.yaml"])
@pytest.mark.parametrize(("given", "written"), [("file.csv", "file.csv"), ("../data/file.csv", "{top}/data/file.csv")])
def test_the_config_may_be_named_by_any_path_too(
    given: str, written: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert url_written(given, out, tmp_path, monkeypatch) == written.format(top=tmp_path)


def url_written(given: str, out: str, top: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run init in ``top``/plant and return the URL of the source in its config."""
    for folder in ("plant/sub", "data"):
        (top / folder).mkdir(parents=True)
    for name in ("plant/file.csv", "data/file.csv", *(["plant/mqtt:file.csv"] if "mqtt" in given else [])):
        (top / name).write_text(CSV)
    (top / "link").symlink_to(top / "data")
    monkeypatch.chdir(top / "plant")
    places = {"top": str(top), "folder": top.name}
    result = CliRunner().invoke(app, ["init", given.format(**places), "--out", out.format(**places)])
    assert result.exit_code == 0, result.output or result.exception
    return load_plant(Path("plant.yaml")).settings.source.url


@pytest.mark.parametrize("name", ["file.csv", "link.csv", "twin.csv"])
def test_a_config_does_not_overwrite_its_sample(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sample = tmp_path / "file.csv"
    sample.write_text(CSV)
    (tmp_path / "link.csv").symlink_to(sample)
    (tmp_path / "twin.csv").hardlink_to(sample)
    result = CliRunner().invoke(app, ["init", "file.csv", "--out", name, "--force"])
    assert "is the sample itself" in str(result.exception)
    assert sample.read_text() == CSV


@pytest.mark.parametrize("has_config", [False, True])
@pytest.mark.parametrize("sample", ["nope.csv", "file:nope.csv", "no/such/folder", "~/nope-is-not-here.csv?decimal=,"])
def test_a_sample_that_is_not_there_is_named_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: str, has_config: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    if has_config:
        (tmp_path / "plant.yaml").write_text("mine")
    result = CliRunner().invoke(app, ["init", sample])
    assert isinstance(result.exception, SourceError)
    name = sample.removeprefix("file:").partition("?")[0].rpartition("/")[2]
    assert f"{name}: no such file or folder" in str(result.exception)
    assert "plant.yaml" not in str(result.exception)
