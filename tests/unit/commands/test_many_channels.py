"""49,000 channels: what is done for each is linear, and no line names more than ten of them.

Nothing here is timed: with a step that compares every channel with every other one, these tests would take minutes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.init.facts.words import channel_names
from streamad.commands.shared.plants import load_plant
from streamad.errors import ArtifactError, ConfigError, Problem, SourceError, StreamadError, some_of
from streamad.ingest.decode import Decoder
from streamad.learn.registry.verify import check_channels
from streamad.settings import template, yaml_file
from streamad.settings.decode import ChannelSettings, DecodeSettings
from streamad.settings.plant_yaml import Settings
from streamad.settings.template import scalar
from streamad.settings.yaml_file import read_yaml
from streamad.types import ChannelSpec

N = 49_000
TAGS = [f"tag_{index:05d}" for index in range(N)]


def test_ten_names_and_a_count() -> None:
    assert some_of(TAGS[:10]) == ", ".join(TAGS[:10])
    assert some_of(TAGS) == f"{', '.join(TAGS[:10])} and 48990 more"


def test_a_config_error_shows_twenty_problems_and_holds_all() -> None:
    error = ConfigError([Problem(f"channels.{index}", "wrong") for index in range(N)])
    assert len(error.problems) == N
    lines = str(error).splitlines()
    assert (lines[0], len(lines), lines[-1].strip()) == ("49000 problems", 22, "and 48980 more")


def test_names_that_are_equal_once_they_are_cut_get_numbers() -> None:
    names = channel_names(["x" * 70] * N)
    assert len(set(names)) == N
    assert max(map(len, names)) == 64


def test_settings_and_decoder() -> None:
    channels: list[dict[str, Any]] = [{"name": name} for name in TAGS]
    settings = Settings(channels=channels, source={"url": "x.csv"})  # type: ignore[arg-type]
    Decoder(settings.decode, settings.channels)
    with pytest.raises(ValueError, match=r"channel named twice: tag_00000, .* and 48990 more"):
        Settings(channels=channels * 2, source={"url": "x.csv"})  # type: ignore[arg-type]


def test_fields_that_two_channels_read() -> None:
    channels = [ChannelSettings(name=f"{name}{end}", field=name) for name in TAGS for end in "ab"]
    with pytest.raises(ConfigError) as error:
        Decoder(DecodeSettings(), channels)
    assert len(error.value.problems) == N


def test_channels_of_a_model_in_another_order() -> None:
    specs = tuple(ChannelSpec(name, "") for name in TAGS)
    check_channels(specs, specs, "model 1")
    with pytest.raises(ArtifactError, match=r"as tag_00000, .* and 48990 more or"):
        check_channels(specs, specs[::-1], "model 1")


def test_usual_names_are_written_without_reading_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str) -> None:
        raise AssertionError(f"{text!r} was read as YAML")

    plain = ["tag_1", "TI-101.PV", "Temp 1", "Druck (bar)", "°C", "1st", "kg/m^3", "Größe"]
    quoted = ["on", "No", "null", "1", "1_000", "2026-03-01", "0x1F", "1.5", "007"]
    with monkeypatch.context() as patched:
        patched.setattr(template.yaml, "safe_load", refuse)
        assert [scalar(text) for text in plain] == plain
        assert [scalar(text) for text in quoted] == [f'"{text}"' for text in quoted]


def test_the_entries_of_a_config_are_bounded_by_its_text_not_by_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_file, "_ENTRIES", 10)
    config = tmp_path / "plant.yaml"
    config.write_text("a: [" + ",".join("1" * 100) + "]\n")
    assert len(read_yaml(config)[0]["a"]) == 100
    config.write_text("a: &a [1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b]\n")
    with pytest.raises(ConfigError, match="aliases that multiply"):
        read_yaml(config)


def run_init(folder: Path, text: str) -> Any:
    (folder / "day.csv").write_text(text)
    return CliRunner().invoke(app, ["init", str(folder / "day.csv"), "--out", str(folder / "plant.yaml")])


def rows(times: list[str], cell: str = "") -> str:
    lines = [",".join(["when", *TAGS[:500]])]
    lines += [",".join([time, *(cell or f"{row * 7 % 5}.{column % 7}" for column in range(500))]) for row, time in
              enumerate(times)]  # fmt: skip
    return "\n".join(lines) + "\n"


TIMES = [f"2026-03-01T00:00:0{second}Z" for second in range(8)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (rows([f"at {index}" for index in range(8)]), "when holds times such as 'at 0', of an unknown format"),
        (rows(TIMES, "Bad"), "nothing numeric found"),
    ],
)
def test_init_names_ten_fields(text: str, message: str, tmp_path: Path) -> None:
    error = run_init(tmp_path, text).exception
    assert isinstance(error, SourceError)
    assert message in str(error)
    assert str(error).count("tag_") <= 13  # ten fields, three of them with the reason
    assert "more" in str(error)


def test_init_prints_ten_fields_that_it_leaves_out_and_the_config_names_all(tmp_path: Path) -> None:
    text = rows(TIMES, "5").splitlines()
    text = [f"{line},{'ok' if row == 0 else row * 3 % 5 + 0.25}" for row, line in enumerate(text)]
    result = run_init(tmp_path, "\n".join(text) + "\n")
    assert result.exit_code == 0
    assert result.output.count("never changes") == 10
    assert "490 more" in result.output
    assert (tmp_path / "plant.yaml").read_text().count("never changes") == 500
    assert [channel.name for channel in load_plant(tmp_path / "plant.yaml").settings.channels] == ["ok"]
    assert not isinstance(result.exception, StreamadError)
