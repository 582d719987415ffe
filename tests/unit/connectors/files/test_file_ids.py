"""The file's name as the id of its sequence."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from pydantic import ValidationError

from streamad.errors import ConfigError, SourceError
from streamad.ingest.decode import Decoder
from streamad.plant import Plant
from streamad.runtime.wiring import source_for
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.testing import ManualClock
from streamad.types import Record
from streamad_connectors.files.finding import bare_name
from tests.support.files import source
from tests.support.follow import Tail
from tests.support.ingest.decoded import block_in
from tests.support.runtime.pipeline import line, settings_of
from tests.support.runtime.recordings import run_recordings, verdicts, write_recording

FILE_IDS = settings_of(
    decode={"sequence_from": "file"}, sequences={"end": ["change"]}, run={"commit_interval": "1ms", "batch_windows": 2}
)


FOLDER_IDS = settings_of(
    decode={"sequence_from": "folder"},
    sequences={"end": ["change"]},
    run={"commit_interval": "1ms", "batch_windows": 2},
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("in/B-17.csv", "B-17"),
        ("B-17.CSV.gz", "B-17"),
        ("2026.03.01.parquet", "2026.03.01"),
        ("B-17.log", "B-17"),
        ("B-17", "B-17"),
    ],
)
def test_the_id_is_the_name_without_its_ending(name: str, expected: str) -> None:
    assert bare_name(Path(name)) == expected


def test_the_files_id_replaces_that_of_the_message() -> None:
    decoder = Decoder(DecodeSettings(sequence_from="file"), [ChannelSettings(name=name) for name in "abc"])
    chunk = b'{"stream": "s", "sequence": "other", "times": [1, 2], "values": [[1, 2, 3], [4, 5, 6]]}'
    block = block_in(decoder, Record(0, chunk, sequence="B-17"), 10**15)
    assert block is not None
    assert block.sequence == "B-17"


@pytest.mark.parametrize("files", ["joined", "separate"])
async def test_each_file_gets_one_verdict_with_its_name(files: str, tmp_path: Path) -> None:
    for number in range(4):
        messages = [line("a", None, [10 * number + k]) for k in range(3)]
        write_recording(tmp_path / "in" / f"B-{number}.jsonl", messages)
    await run_recordings(tmp_path, settings=FILE_IDS, files=files, at_end="judge")
    assert verdicts(tmp_path) == {(f"B-{number}", "normal", 3): 1 for number in range(4)}


async def test_separate_files_may_come_in_any_order_of_time(tmp_path: Path) -> None:
    for number in range(4):
        write_recording(tmp_path / "in" / f"B-{number}.jsonl", [line("a", None, [-100 * number + k]) for k in range(3)])
    await run_recordings(tmp_path, settings=FILE_IDS)
    write_recording(tmp_path / "in" / "A.jsonl", [line("a", None, [-1000 + k]) for k in range(2)])
    await run_recordings(tmp_path, settings=FILE_IDS)
    assert verdicts(tmp_path) == {**{(f"B-{number}", "normal", 3): 1 for number in range(4)}, ("A", "normal", 2): 1}


async def test_equal_names_in_two_folders_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_recording(tmp_path / "in" / folder / "B-1.jsonl", [line("a", None, [1.0])])
    with pytest.raises(SourceError, match=r"a/B-1\.jsonl and .*b/B-1\.jsonl would both be sequence 'B-1'; rename one"):
        await run_recordings(tmp_path, "in/**/*.jsonl", settings=FILE_IDS)


@pytest.mark.parametrize("files", ["joined", "separate"])
async def test_the_folders_name_may_be_the_id(files: str, tmp_path: Path) -> None:
    for number in range(3):
        messages = [line("a", None, [10 * number + k]) for k in range(3)]
        write_recording(tmp_path / "in" / f"swing {number}" / "Raw Data.jsonl", messages)
    await run_recordings(tmp_path, "in/*/Raw Data.jsonl", settings=FOLDER_IDS, files=files, at_end="judge")
    assert verdicts(tmp_path) == {(f"swing {number}", "normal", 3): 1 for number in range(3)}


async def test_a_followed_file_has_its_folders_id(tmp_path: Path) -> None:
    write_recording(tmp_path / "in" / "S1" / "log.jsonl", [b"{}"])
    async with Tail("in/*/log.jsonl", tmp_path, sequence_from="folder") as tail:
        await tail.begin()
        await tail.catch_up()
        assert [record.sequence for record in tail.records] == ["S1"]


@pytest.mark.parametrize("follow", [{}, {"follow": True}])
@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (
            ["a/S1/x.jsonl", "a/S1/y.jsonl"],
            r"x\.jsonl and .*y\.jsonl would both be sequence 'S1'; write a pattern that matches one file a folder, "
            r"such as source\.url: '.*/in/a/\*/y\.jsonl'$",
        ),
        (["a/S1/x.jsonl", "b/S1/x.jsonl"], r"would both be sequence 'S1'; rename one of the folders$"),
    ],
)
async def test_equal_folders_are_refused(
    paths: list[str], message: str, follow: dict[str, Any], tmp_path: Path
) -> None:
    for path in paths:
        write_recording(tmp_path / "in" / path, [b"{}"])
    opened = source("in/*/*/*.jsonl", tmp_path, sequence_from="folder", **follow)
    events = cast("AsyncGenerator[Any, None]", opened.batches())
    with pytest.raises(SourceError, match=message):
        await anext(events)


async def test_files_with_ids_of_their_own_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    np.savez(tmp_path / "in" / "x.npz", x=np.zeros((2, 3, 4)))
    with pytest.raises(SourceError, match=r"x\.npz: npz files hold ids of their own; leave out decode\.sequence_from"):
        await run_recordings(tmp_path, "in/*.npz", settings=FILE_IDS)


def test_two_places_of_the_id_are_refused_when_the_config_is_read() -> None:
    with pytest.raises(ValidationError, match=r"sequence_from: file and fields\.sequence \(batch\): leave one of them"):
        DecodeSettings(sequence_from="file", fields=FieldSettings(sequence="batch"))
    with pytest.raises(ValidationError, match=r"sequence_from: folder and fields\.sequence \(batch\): leave one"):
        DecodeSettings(sequence_from="folder", fields=FieldSettings(sequence="batch"))
    assert DecodeSettings(sequence_from="file", fields=FieldSettings(sequence=None)).sequence_from == "file"
    assert DecodeSettings(sequence_from="file", fields=FieldSettings(time="ts")).sequence_from == "file"


def test_a_source_without_files_is_refused_when_the_config_is_read(tmp_path: Path) -> None:
    text = "sequence_from: file needs recordings in files, not kafka: leave it out, or read files"
    for given in ("file", "folder"):
        with pytest.raises(ValidationError, match=text.replace("file ", f"{given} ")):
            settings_of(source={"url": "kafka://host/topic"}, decode={"sequence_from": given})
    with pytest.raises(ConfigError, match=text):
        source_for(Plant(FILE_IDS, tmp_path, ManualClock()), "kafka://host/topic")
