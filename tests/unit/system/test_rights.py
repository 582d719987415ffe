"""An error of permissions names the path, the user and the right."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from streamad.commands.shared.figures.labels import LabelOptions
from streamad.errors import ConfigError, OutputError, RegistryError, SourceError
from streamad.learn.registry.registry import Registry
from streamad.settings.decode import DecodeSettings
from streamad.settings.plant_yaml import load_settings
from streamad.system.files import write_atomically
from streamad.system.rights import missing_right, reason, user_name
from streamad.testing import ListSource


def test_the_path_that_stands_in_the_way_is_named(unprivileged_folder: Path) -> None:
    folder = unprivileged_folder
    (folder / "closed/in").mkdir(parents=True)
    (folder / "closed/in/a.csv").touch()
    (folder / "kept").mkdir()
    (folder / "kept/a.csv").touch()
    (folder / "shut.csv").touch(mode=0o000)
    (folder / "closed").chmod(0o600)
    (folder / "kept").chmod(0o500)
    user = user_name()
    assert missing_right(folder / "closed/in/a.csv", "read") == f"{user} needs the right to enter {folder}/closed"
    assert missing_right(folder / "shut.csv", "read") == f"{user} needs the right to read {folder}/shut.csv"
    assert missing_right(folder / "shut.csv", "write") == f"{user} needs the right to write to {folder}/shut.csv"
    assert missing_right(folder / "kept/new/b.csv", "write") == f"{user} needs the right to write in {folder}/kept"
    assert missing_right(folder / "kept/a.csv", "write") == f"{user} needs the right to write in {folder}/kept"
    assert missing_right(folder / "kept", "read") == f"{user} needs the right to list {folder}/kept"
    (folder / "closed").chmod(0o700)
    (folder / "kept").chmod(0o700)


def test_other_errors_keep_their_text(tmp_path: Path) -> None:
    assert reason(OSError(errno.ENOSPC, "No space left on device"), tmp_path, "write") == "No space left on device"


@pytest.mark.parametrize("what", ["config", "registry", "version", "labels", "output"])
def test_every_place_says_which_right_is_missing(what: str, unprivileged_folder: Path) -> None:
    folder = unprivileged_folder
    closed = folder / "closed"
    (closed / "default/versions/0001").mkdir(parents=True)
    (closed / "plant.yaml").touch()
    closed.chmod(0o000)
    calls = {
        "config": lambda: load_settings(closed / "plant.yaml"),
        "registry": lambda: Registry(closed).current("default"),
        "version": lambda: Registry(closed).manifest("default", "0001"),
        "labels": lambda: LabelOptions(str(closed / "labels.csv")).read(ListSource({}), DecodeSettings()),
        "output": lambda: write_atomically(closed / "out.jsonl", b""),
    }
    try:
        with pytest.raises((ConfigError, RegistryError, SourceError, OutputError)) as caught:
            calls[what]()
    finally:
        closed.chmod(0o700)
    assert f"{user_name()} needs the right to enter {closed}" in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 2  # a config's problems follow its name
