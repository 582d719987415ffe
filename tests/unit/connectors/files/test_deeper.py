"""Recordings that lie deeper than the folder that was given: the pattern that matches them alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.errors import SourceError
from streamad_connectors.files.deeper import deeper_recordings
from streamad_connectors.files.finding import find_files
from streamad_connectors.files.formats.options import FileOptions
from tests.support.examples import examples


def write(folder: Path, name: str, size: int = 100) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x" * size, encoding="utf-8")


def test_one_folder_a_recording(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, f"swing {number}/Raw Data.csv")
        write(tmp_path, f"swing {number}/meta/device.csv", 20)
        write(tmp_path, f"swing {number}/meta/time.csv", 30)
        write(tmp_path, f"swing {number}/note.txt", 900)
    found = deeper_recordings(tmp_path, FileOptions())
    assert found is not None
    assert (found.pattern, found.n_files, found.sequence_from) == ("*/Raw Data.csv", 5, "folder")
    message = f"{tmp_path}: no recordings in this folder itself, but 5 lie deeper: write '{tmp_path}/*/Raw Data.csv'"
    with pytest.raises(SourceError, match=f"^{re.escape(message)}$"):
        find_files(str(tmp_path), FileOptions(), tmp_path)
    assert len(find_files(f"{tmp_path}/*/Raw Data.csv", FileOptions(), tmp_path)) == 5


def test_folders_of_recordings(tmp_path: Path) -> None:
    for number in range(6):
        write(tmp_path, f"2026/day [{number % 2}]/B-{number}.csv.gz")
    found = deeper_recordings(tmp_path, FileOptions())
    assert found is not None
    assert (found.pattern, found.n_files, found.sequence_from) == ("2026/*/*.csv.gz", 6, "file")


@pytest.mark.parametrize(
    ("names", "pattern", "sequence_from"),
    [
        (["a/1.csv", "a/2.csv", "b/1.csv", "b/2.csv", "b/3.csv"], "*/*.csv", "message"),  # few folders of many files
        (["a/data/r.csv", "b/data/r.csv"], "*/data/r.csv", "message"),  # the last folders have one name
        (["only [1]/x.csv"], "only [[]1]/*.csv", "file"),
        (["a/acc.csv", "a/gyr.csv", "b/acc.csv", "b/gyr.csv"], "*/acc.csv", "folder"),
    ],
)
def test_other_places(names: list[str], pattern: str, sequence_from: str, tmp_path: Path) -> None:
    for name in names:
        write(tmp_path, name)
    found = deeper_recordings(tmp_path, FileOptions())
    assert found is not None
    assert (found.pattern, found.sequence_from) == (pattern, sequence_from)


def test_nothing_is_offered_where_nothing_lies(tmp_path: Path) -> None:
    write(tmp_path, "a/note.txt")
    write(tmp_path, ".hidden/a.csv")
    (tmp_path / "a" / "gone.csv").symlink_to(tmp_path / "nowhere.csv")
    (tmp_path / "a" / "again").symlink_to(tmp_path)
    assert deeper_recordings(tmp_path, FileOptions()) is None
    with pytest.raises(SourceError, match=r"no recordings in this folder \(looked for"):
        find_files(str(tmp_path), FileOptions(), tmp_path)
    found = deeper_recordings(tmp_path, FileOptions(format="csv"))
    assert found is not None
    assert found.pattern == "a/*.txt"


NAME = st.sampled_from(["a", "b", "c 1", "[d]", "e*"])
FILE = st.sampled_from(["x.csv", "y.csv", "z.jsonl", "B-1.csv", "B-2.csv.gz", "note.txt", "[w].csv"])


@given(
    st.lists(
        st.tuples(st.lists(NAME, min_size=1, max_size=3), FILE, st.integers(0, 50)),
        min_size=1,
        max_size=12,
        unique_by=lambda item: (tuple(item[0]), item[1]),
    )
)
@settings(max_examples=examples(150), deadline=None)
def test_the_pattern_matches_that_many_files(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[list[str], str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("deeper")
    for folders, name, size in files:
        write(folder, "/".join([*folders, name]), size)
    found = deeper_recordings(folder, FileOptions())
    if found is None:
        assert all(name == "note.txt" for _, name, _ in files)
        return
    matched = find_files(f"{folder}/{found.pattern}", FileOptions(), folder)
    assert len(matched) == found.n_files
    ids = {file.path.parent.name if found.sequence_from == "folder" else file.path.name for file in matched}
    assert found.sequence_from == "message" or len(ids) == len(matched)
