"""Links among recordings: inside their folder they are followed, out of it refused unless an option says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamad.errors import ConfigError, SourceError
from streamad_connectors.files.finding import find_files
from streamad_connectors.files.follow.listing import Listing
from streamad_connectors.files.formats.options import FileOptions
from tests.support.files import read, read_one, source

AWAY = r"is a link, or lies in one, out of .*: copy the file there, or set source\.options\.links: anywhere"


def lines(path: Path, n: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}\n" * n)
    return path


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    return lines(tmp_path / "secret" / "keys.jsonl", 3)


@pytest.mark.parametrize("url", ["in", "in/*.jsonl", "in/**/*.jsonl", "*/b.jsonl"])
async def test_a_link_out_of_the_folder_is_refused_unless_it_may(url: str, tmp_path: Path, secret: Path) -> None:
    plant = tmp_path / "plant"
    lines(plant / "in" / "a.jsonl")
    (plant / "in" / "b.jsonl").symlink_to(secret)
    with pytest.raises(SourceError, match=rf"b\.jsonl: {AWAY}"):
        await read(url, plant)
    found = await read(url, plant, links="anywhere")
    assert len(found["in/b.jsonl"]) == 3
    (plant / "in" / "b.jsonl").unlink()
    (plant / "in" / "b.jsonl").symlink_to("a.jsonl")  # of a relative one, as those of a volume
    assert len((await read(url, plant))["in/b.jsonl"]) == 1


@pytest.mark.parametrize("url", ["in/*/keys.jsonl", "in/**/../*/keys.jsonl", "in"])
async def test_a_folder_that_is_a_link_out_of_it_is_refused(url: str, tmp_path: Path, secret: Path) -> None:
    plant = tmp_path / "plant"
    lines(plant / "in" / "day=1" / "keys.jsonl")
    (plant / "in" / "day=2").symlink_to(secret.parent)
    with pytest.raises(SourceError, match=AWAY):
        await read(url, plant)


async def test_a_volume_that_kubernetes_mounts_is_read(tmp_path: Path) -> None:
    lines(tmp_path / "in" / "..2026_11_30" / "a.jsonl", 2)
    (tmp_path / "in" / "..data").symlink_to("..2026_11_30")
    (tmp_path / "in" / "a.jsonl").symlink_to("..data/a.jsonl")
    assert {name: len(found) for name, found in (await read("in", tmp_path)).items()} == {"in/a.jsonl": 2}
    (tmp_path / "linked").symlink_to("in")  # a folder that is named itself
    assert len((await read("linked", tmp_path))["linked/a.jsonl"]) == 2


async def test_a_link_that_is_named_itself_may_lead_anywhere(tmp_path: Path, secret: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.jsonl").symlink_to(secret)
    assert len(await read_one("in/b.jsonl", tmp_path)) == 3
    assert len(await read_one(f"file://{tmp_path}/in/b.jsonl", tmp_path)) == 3


def test_a_link_that_takes_a_file_s_place_before_it_is_read_is_refused(tmp_path: Path, secret: Path) -> None:
    a = lines(tmp_path / "in" / "a.jsonl")
    (file,) = find_files("in", FileOptions(), tmp_path)
    a.unlink()
    a.symlink_to(secret)
    with pytest.raises(SourceError, match=AWAY), file.held():
        pass


def test_a_rotated_file_that_is_a_link_is_refused(tmp_path: Path, secret: Path) -> None:
    log = lines(tmp_path / "in" / "a.jsonl")
    (tmp_path / "in" / "a.jsonl.1").symlink_to(secret)
    for rest in ("in", "in/a.jsonl"):
        with pytest.raises(SourceError, match=AWAY):
            Listing(rest, FileOptions(follow=True), tmp_path).rotated(log)
    assert Listing("in", FileOptions(follow=True, links="anywhere"), tmp_path).rotated(log)


def test_hive_folders_that_link_to_each_other_are_each_entered_once(tmp_path: Path) -> None:
    """With every folder by every way, ten of them would be read for ever."""
    lines(tmp_path / "in" / "n=0" / "a.jsonl")
    for i in range(1, 10):
        (tmp_path / "in" / f"n={i}").symlink_to(".")
    assert [file.path.name for file in find_files("in", FileOptions(), tmp_path)] == ["a.jsonl"]


def test_links_are_no_option_of_an_object_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="links is for files of this machine; leave it out"):
        source("s3://bucket/in/", tmp_path, links="anywhere")
