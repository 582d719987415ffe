"""Recordings between two runs: replaced, grown, cut, joined; no verdict is lost or doubled without a word."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from streamad.errors import SourceError
from streamad.runtime.pipeline import Pipeline
from tests.support.runtime.disk import Disk
from tests.support.runtime.pipeline import TickingClock, line, outputs, settings_of, until
from tests.support.runtime.recordings import batches_of, run_recordings, verdicts, write_recording


def names(first: int, after: int) -> list[str]:
    return [f"B-{number}" for number in range(first, after)]


async def test_a_recording_replaced_by_a_longer_one_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    recording = tmp_path / "in" / "a.jsonl"
    write_recording(recording, batches_of(names(0, 20)))
    await run_recordings(tmp_path)
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    write_recording(recording, batches_of(names(100, 130)))
    with pytest.raises(SourceError, match="it was replaced or cut"):
        await run_recordings(tmp_path)
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    recording.rename(tmp_path / "in" / "b.jsonl")
    await run_recordings(tmp_path)
    assert verdicts(tmp_path) == dict.fromkeys(((name, "normal", 2) for name in names(0, 20) + names(100, 130)), 1)


async def test_a_recording_that_grew_is_continued(tmp_path: Path) -> None:
    for after in (10, 20, 30):
        write_recording(tmp_path / "in" / "a.jsonl", batches_of(names(0, after)))
        await run_recordings(tmp_path)
        assert verdicts(tmp_path) == dict.fromkeys(((name, "normal", 2) for name in names(0, after)), 1)


# --- joined files ----------------------------------------------------------------------------------------------------

CHANGE = settings_of(sequences={"end": ["change"]}, run={"commit_interval": "1ms", "batch_windows": 2})


def days() -> list[list[bytes]]:
    """Four days of one historian: batches over midnight, an empty day, and a dead letter."""
    samples = batches_of([f"B-{number}" for number in range(7)], samples=3)
    samples[6:9] = [line("a", "B-2", [float(time_s)], 10.0) for time_s in (6, 7, 8)]
    return [samples[:4], [*samples[4:10], b"{"], [], samples[10:]]


def write_days(folder: Path, written: Sequence[Sequence[bytes]]) -> None:
    for number, messages in enumerate(written, 8):  # day-10 comes after day-9
        write_recording(folder / "in" / f"day-{number}.jsonl", messages)


async def joined(folder: Path, **options: Any) -> int:
    """Run with joined files; return the number of sequences held."""
    pipeline = await run_recordings(folder, settings=CHANGE, files="joined", **options)
    return pipeline.counters.held


@pytest.fixture
async def at_once(tmp_path: Path) -> dict[str, list[str]]:
    """The outputs of all days in one run."""
    write_days(tmp_path / "at-once", days())
    assert await joined(tmp_path / "at-once") == 1
    return outputs(tmp_path / "at-once")


async def test_a_batch_over_midnight_gets_one_verdict(tmp_path: Path) -> None:
    write_days(tmp_path, days())
    assert await joined(tmp_path) == 1
    expected = [(f"B-{number}", "anomalous" if number == 2 else "normal", 3) for number in range(6)]
    assert verdicts(tmp_path) == dict.fromkeys(expected, 1)
    assert await joined(tmp_path, at_end="judge") == 0
    assert verdicts(tmp_path) == dict.fromkeys([*expected, ("B-6", "normal", 3)], 1)
    await joined(tmp_path, at_end="judge")
    assert verdicts(tmp_path).total() == 7


async def test_day_by_day_equals_all_at_once(tmp_path: Path, at_once: dict[str, list[str]]) -> None:
    for n_days in range(1, 5):
        write_days(tmp_path, days()[:n_days])
        await joined(tmp_path)
        await joined(tmp_path)  # a run without anything new changes nothing
    assert outputs(tmp_path) == at_once


async def test_a_run_at_every_record_equals_all_at_once(tmp_path: Path, at_once: dict[str, list[str]]) -> None:
    """The last file grows by one record between two runs, until the next one begins."""
    written: list[list[bytes]] = []
    for day in days():
        written.append([])
        write_days(tmp_path, written)
        await joined(tmp_path)
        for message in day:
            written[-1].append(message)
            write_days(tmp_path, written)
            await joined(tmp_path)
    assert outputs(tmp_path) == at_once


async def test_files_below_the_low_watermark_may_vanish(tmp_path: Path, at_once: dict[str, list[str]]) -> None:
    write_days(tmp_path, days()[:2])
    await joined(tmp_path)
    (tmp_path / "in" / "day-8.jsonl").unlink()  # B-3, open, began on day 9
    await joined(tmp_path)
    for number, messages in ((10, days()[2]), (11, days()[3])):
        write_recording(tmp_path / "in" / f"day-{number}.jsonl", messages)
    await joined(tmp_path)
    assert outputs(tmp_path) == at_once


async def test_a_file_read_and_judged_whole_may_vanish_before_the_next_comes(tmp_path: Path) -> None:
    write_days(tmp_path, [batches_of(["B-0"])])
    await joined(tmp_path, at_end="judge")
    write_days(tmp_path, [batches_of(["B-0"]), batches_of(["B-1"], start_s=10)])
    (tmp_path / "in" / "day-8.jsonl").unlink()
    await joined(tmp_path, at_end="judge")
    assert verdicts(tmp_path) == {("B-0", "normal", 2): 1, ("B-1", "normal", 2): 1}


async def refused(folder: Path, text: str, **options: Any) -> None:
    """The run is refused in one line, and the outputs stay as they are."""
    before = {path: path.read_bytes() for path in (folder / "out").iterdir()}
    with pytest.raises(SourceError, match=text) as caught:
        await run_recordings(folder, settings=CHANGE, **{"files": "joined", **options})
    assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in (folder / "out").iterdir()} == before


async def test_what_does_not_continue_joined_files_is_refused(tmp_path: Path, at_once: dict[str, list[str]]) -> None:
    write_days(tmp_path, days()[:2])
    await joined(tmp_path)
    first, second = (tmp_path / "in" / f"day-{number}.jsonl" for number in (8, 9))

    content = first.read_bytes()
    first.write_bytes(content + days()[3][0] + b"\n")
    await refused(tmp_path, r"day-8\.jsonl: grew after it was finished; put what was added into a new file")
    first.write_bytes(content.replace(b"B-0", b"B-9"))
    await refused(tmp_path, r"day-8\.jsonl: no longer holds the records that were judged")
    first.write_bytes(content)

    later = second.read_bytes()
    second.write_bytes(later.replace(b"B-2", b"B-9"))
    await refused(tmp_path, r"day-9\.jsonl: no longer holds the records that were judged")
    second.unlink()
    await refused(tmp_path, r"in/day-9\.jsonl: is gone, but holds samples without a verdict; put it back")
    second.write_bytes(later)

    write_recording(tmp_path / "in" / "day-8b.jsonl", days()[3])
    await refused(tmp_path, r"day-8b\.jsonl: is new, but comes before in/day-9\.jsonl, where reading stands")
    (tmp_path / "in" / "day-8b.jsonl").unlink()

    write_days(tmp_path, days())
    await joined(tmp_path)
    assert outputs(tmp_path) == at_once


async def test_an_unreadable_file_amid_a_set_ends_the_run_before_it(
    tmp_path: Path, at_once: dict[str, list[str]]
) -> None:
    write_days(tmp_path, days())
    place = tmp_path / "in" / "day-9.jsonl"
    content = place.read_bytes()
    place.unlink()
    place.with_name("day-9.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(SourceError, match=r"day-9\.jsonl\.gz: cannot be read"):
        await joined(tmp_path, url="in/*.jsonl*")
    place.with_name("day-9.jsonl.gz").unlink()
    place.write_bytes(content)
    await joined(tmp_path, url="in/*.jsonl*")
    assert outputs(tmp_path)["verdicts"] == at_once["verdicts"]


@pytest.mark.parametrize(("first", "then"), [("separate", "joined"), ("joined", "separate")])
async def test_a_checkpoint_of_the_other_kind_is_refused(first: str, then: str, tmp_path: Path) -> None:
    write_days(tmp_path, days())
    await run_recordings(tmp_path, settings=CHANGE, files=first)
    await refused(tmp_path, f"the checkpoint was made with files: {first}.* set source.options.files to", files=then)
    await run_recordings(tmp_path, settings=CHANGE, files=first)


async def test_joined_files_under_another_url_are_refused(tmp_path: Path) -> None:
    write_days(tmp_path, days())
    await joined(tmp_path)
    await refused(tmp_path, r"the checkpoint has these files as in/\*\.jsonl", url="in")


async def test_equal_ids_of_two_days_at_equal_offsets_differ(tmp_path: Path) -> None:
    for number, names_of_day in enumerate((["1", "2"], ["1", "3"])):
        messages = batches_of(names_of_day, start_s=(number - 1) * 86_400)
        write_recording(tmp_path / "in" / f"day-{number}.jsonl", messages)
    settings = settings_of(
        sequences={"end": ["change"], "max_duration": "1h", "closed_memory": "1h"}, run={"commit_interval": "1ms"}
    )
    await run_recordings(tmp_path, settings=settings, files="joined", at_end="judge")
    lines = (tmp_path / "out" / "verdicts.jsonl").read_text().splitlines()
    assert verdicts(tmp_path) == {("1", "normal", 2): 2, ("2", "normal", 2): 1, ("3", "normal", 2): 1}
    assert len({json.loads(text)["verdict_id"] for text in lines}) == 4


async def test_ids_do_not_depend_on_whether_files_are_joined(tmp_path: Path) -> None:
    samples = batches_of([f"B-{number}" for number in range(4)])
    ids = []
    for kind in ("joined", "separate"):
        write_recording(tmp_path / kind / "in" / "a.jsonl", samples)
        await run_recordings(tmp_path / kind, settings=CHANGE, files=kind, at_end="judge")
        lines = (tmp_path / kind / "out" / "verdicts.jsonl").read_text().splitlines()
        ids.append([json.loads(text)["verdict_id"] for text in lines])
    assert ids[0] == ids[1]
    assert len(ids[0]) == 4


async def test_a_new_file_before_those_that_the_checkpoint_forgot_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamad_connectors.files.joined.REMEMBERED_FILES", 2)
    for day in range(1, 6):
        write_recording(tmp_path / "in" / f"day-{day}.jsonl", batches_of([f"B-{day}"], start_s=2 * day))
    await run_recordings(tmp_path, settings=CHANGE, files="joined")
    write_recording(tmp_path / "in" / "day-0.jsonl", batches_of(["B-0"]))
    with pytest.raises(SourceError, match=r"more files than were read \(2\) come up to in/day-2\.jsonl, so one"):
        await run_recordings(tmp_path, settings=CHANGE, files="joined")
    (tmp_path / "in" / "day-0.jsonl").unlink()
    await run_recordings(tmp_path, settings=CHANGE, files="joined", at_end="judge")
    assert verdicts(tmp_path).total() == 5


async def test_the_order_of_change(tmp_path: Path) -> None:
    samples = batches_of([f"B-{number}" for number in range(4)], samples=3)
    for age, (name, part) in enumerate({"z": samples[:4], "a": samples[4:8], "m": samples[8:]}.items()):
        write_recording(tmp_path / "in" / f"{name}.jsonl", part)
        os.utime(tmp_path / "in" / f"{name}.jsonl", (2e9 + age, 2e9 + age))
    assert await joined(tmp_path, order="time") == 1
    assert verdicts(tmp_path) == dict.fromkeys([(f"B-{number}", "normal", 3) for number in range(3)], 1)
    write_recording(tmp_path / "in" / "b.jsonl", batches_of(["B-9"], start_s=99))
    os.utime(tmp_path / "in" / "b.jsonl", (2e9 + 0.5, 2e9 + 0.5))
    await refused(tmp_path, r"b\.jsonl: is new, but comes before in/m\.jsonl", order="time")
    os.utime(tmp_path / "in" / "b.jsonl", (2e9 + 3, 2e9 + 3))
    await joined(tmp_path, order="time")
    assert verdicts(tmp_path).total() == 4


async def test_a_recording_cut_amid_a_batch_gives_no_verdict_on_its_half(tmp_path: Path) -> None:
    messages = batches_of(["B-0", "B-1"], samples=4)
    for n in (5, 6, 7):
        write_recording(tmp_path / "in" / "a.jsonl", messages[:n])
        pipeline = await run_recordings(tmp_path, settings=CHANGE, at_end="hold")
        assert pipeline.counters.held == 1
        assert verdicts(tmp_path) == {("B-0", "normal", 4): 1}
    write_recording(tmp_path / "in" / "a.jsonl", messages)
    await run_recordings(tmp_path, settings=CHANGE, at_end="judge")
    assert verdicts(tmp_path) == {("B-0", "normal", 4): 1, ("B-1", "normal", 4): 1}


async def test_sequences_whose_samples_wait_for_late_ones_count_as_held(tmp_path: Path) -> None:
    write_recording(tmp_path / "in" / "day-1.jsonl", batches_of(["B-0", "B-1"], samples=3))
    patient = settings_of(sequences={"end": ["change"], "allowed_lateness": "10s"})
    pipeline = await run_recordings(tmp_path, settings=patient, files="joined")
    assert pipeline.counters.held == 2
    assert verdicts(tmp_path).total() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the dying disk finds paths in /proc")
@pytest.mark.parametrize("loses_power", [False, True])
async def test_crashes_in_a_row_change_no_output_of_joined_files(
    loses_power: bool, tmp_path: Path, at_once: dict[str, list[str]]
) -> None:
    folder, crashes = tmp_path / "run", 0
    for n_days in range(1, 5):
        write_days(folder, days()[:n_days])
        for dies_at in count(1):  # each run goes one operation further than the one that died before
            with Disk(folder, dies_at, loses_power=loses_power) as disk:
                await joined(folder)
            if not disk.is_dead:
                break
            crashes += 1
    assert crashes > 40
    assert outputs(folder) == at_once


async def test_late_samples_without_an_id_are_told_of_at_the_end_of_a_run(tmp_path: Path) -> None:
    messages = [line("a", None, [float(time_s)]) for time_s in (100, 101, 50, 51, 102)]
    write_recording(tmp_path / "in" / "a.jsonl", messages)
    await joined(tmp_path)
    (event,) = [json.loads(text) for text in (tmp_path / "out" / "events.jsonl").read_text().splitlines()]
    assert (event["kind"], event["stream"]) == ("late_samples", "a")
    assert event["message"].endswith("no verdict: 2 from 2026-01-01T00:00:50+00:00 to 2026-01-01T00:00:51+00:00")


# --- the machine's clock ---


async def test_a_wrong_machine_clock_decides_nothing(tmp_path: Path) -> None:
    """In 1970 all of a recording lies in the future; its file's time of change does not."""
    write_recording(tmp_path / "in" / "a.jsonl", batches_of([f"B-{number}" for number in range(4)]))
    clock = TickingClock(0.001, start_us=1_000_000)
    await run_recordings(tmp_path, settings=CHANGE, files="separate", clock=clock)
    assert {decision for _, decision, _ in verdicts(tmp_path)} == {"normal"}
    assert verdicts(tmp_path).total() == 4


@pytest.mark.parametrize("n", [1, 30])
@pytest.mark.parametrize("options", [{"files": "separate"}, {"files": "joined"}, {"at_end": "hold"}])
async def test_a_recording_whose_time_of_change_is_wrong_is_refused_and_loses_nothing(
    tmp_path: Path, n: int, options: dict[str, str]
) -> None:
    path = tmp_path / "in" / "a.jsonl"
    write_recording(path, batches_of([f"B-{number}" for number in range(n)]))
    good_s = path.stat().st_mtime
    os.utime(path, (1, 1))
    wrong = r"\.jsonl: the first \d+ records all lie after the file's last change \(1970"
    with pytest.raises(SourceError, match=wrong):
        await run_recordings(tmp_path, settings=CHANGE, **options)
    os.utime(path, (good_s, good_s))
    await run_recordings(tmp_path, settings=CHANGE, **options | {"at_end": "judge"})
    assert verdicts(tmp_path).total() == n
    assert not (tmp_path / "out" / "dead_letters.jsonl").read_text()


async def test_a_stop_while_all_times_are_wrong_commits_nothing(tmp_path: Path) -> None:
    path = tmp_path / "in" / "app.jsonl"
    write_recording(path, batches_of([f"B-{number}" for number in range(4)]))
    good_s = path.stat().st_mtime
    os.utime(path, (1, 1))

    async def read(pipeline: Pipeline) -> None:
        await until(lambda: pipeline.counters.records >= 8)

    await run_recordings(tmp_path, settings=CHANGE, while_running=read, follow=True)
    os.utime(path, (good_s, good_s))
    await run_recordings(tmp_path, settings=CHANGE, at_end="judge")
    assert verdicts(tmp_path).total() == 4


@pytest.mark.parametrize("first", [b"garbage", b"{}", b'{"stream": "r1", "time": "yesterday", "values": {}}'])
async def test_an_unreadable_first_line_does_not_hide_that_the_time_of_change_is_wrong(
    tmp_path: Path, first: bytes
) -> None:
    path = tmp_path / "in" / "a.jsonl"
    write_recording(path, batches_of(["B-0", "B-1"]))
    path.write_bytes(first + b"\n" + path.read_bytes())
    good_s = path.stat().st_mtime
    os.utime(path, (1, 1))
    for _ in range(2):
        with pytest.raises(SourceError, match="all lie after the file's last change"):
            await run_recordings(tmp_path, settings=CHANGE, files="separate")
    os.utime(path, (good_s, good_s))
    await run_recordings(tmp_path, settings=CHANGE, files="separate")
    assert verdicts(tmp_path).total() == 2


async def test_what_was_unreadable_stays_so_if_the_file_is_changed_later(tmp_path: Path) -> None:
    """A sample ahead of the file's time of change is a dead letter, read again or not."""
    path = tmp_path / "in" / "a.jsonl"
    messages = batches_of(["B-0", "B-1"], samples=3)
    ahead = batches_of(["B-2"], start_s=2e9, samples=1)
    write_recording(path, messages[:4] + ahead)
    await run_recordings(tmp_path, settings=CHANGE, files="joined")
    write_recording(path, messages[:4] + ahead + messages[4:])
    os.utime(path, (4e9, 4e9))
    await run_recordings(tmp_path, settings=CHANGE, files="joined", at_end="judge")
    assert verdicts(tmp_path) == {("B-0", "normal", 3): 1, ("B-1", "normal", 3): 1}
    (letter,) = (tmp_path / "out" / "dead_letters.jsonl").read_text().splitlines()
    assert json.loads(letter)["kind"] == "clock_skew"


# --- files that are sorted when they are read ------------------------------------------------------------------------


def shuffled() -> list[bytes]:
    """A day out of order, with a dead letter in it."""
    samples = batches_of([f"B-{number}" for number in range(7)], samples=3)
    samples[6:9] = [line("a", "B-2", [float(time_s)], 10.0) for time_s in (6, 7, 8)]
    found = random.Random(4).sample(samples, len(samples))
    return [*found[:5], b"{", *found[5:]]


async def sorted_run(folder: Path, **options: Any) -> None:
    await run_recordings(folder, settings=CHANGE, sort=True, **options)


@pytest.mark.skipif(sys.platform != "linux", reason="the dying disk finds paths in /proc")
@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize("files", ["separate", "joined"])
async def test_crashes_in_a_row_change_no_output_of_a_sorted_file(
    files: str, loses_power: bool, tmp_path: Path
) -> None:
    messages = shuffled()
    write_recording(tmp_path / "at-once" / "in" / "a.jsonl", messages)
    await sorted_run(tmp_path / "at-once", files=files, at_end="judge")
    expected = [(f"B-{number}", "anomalous" if number == 2 else "normal", 3) for number in range(7)]
    assert verdicts(tmp_path / "at-once") == dict.fromkeys(expected, 1)
    folder = tmp_path / "run"
    write_recording(folder / "in" / "a.jsonl", messages)
    for dies_at in count(1):
        with Disk(folder, dies_at, loses_power=loses_power) as disk:
            await sorted_run(folder, files=files, at_end="judge")
        if not disk.is_dead:
            break
    assert dies_at > 15
    assert outputs(folder) == outputs(tmp_path / "at-once")


async def test_a_sorted_file_may_grow_by_later_records_only(tmp_path: Path) -> None:
    messages = batches_of(names(0, 20))
    place = tmp_path / "in" / "a.jsonl"
    write_recording(place, [*reversed(messages[:20])])
    await sorted_run(tmp_path)
    write_recording(place, [*reversed(messages[:20]), *reversed(messages[20:])])
    await sorted_run(tmp_path)
    assert verdicts(tmp_path) == dict.fromkeys(((name, "normal", 2) for name in names(0, 20)), 1)
    write_recording(place, [*reversed(messages[:20]), *reversed(messages[20:]), line("a", "B-x", [3.5])])
    await refused(
        tmp_path, r"a\.jsonl: grew by records that sort before those that were judged", sort=True, files="separate"
    )


async def test_another_order_than_before_is_refused(tmp_path: Path) -> None:
    write_recording(tmp_path / "in" / "a.jsonl", [*reversed(batches_of(names(0, 5)))])
    await sorted_run(tmp_path)
    await refused(
        tmp_path, r"a\.jsonl: its records come in another order than those that were judged", files="separate"
    )


async def test_another_order_of_an_earlier_joined_file_is_refused(tmp_path: Path) -> None:
    """B-3 is open since the first day, which alone is out of order; the day that was read last is in order."""
    first, second = batches_of(["B-0", "B-1", "B-2", "B-3"], samples=3)[:-1], [line("a", "B-3", [11.5])]
    write_days(tmp_path, [[*first[3:6], *first[:3], *first[6:]], second])
    await sorted_run(tmp_path, files="joined")
    assert verdicts(tmp_path) == dict.fromkeys(((name, "normal", 3) for name in names(0, 3)), 1)
    await refused(tmp_path, r"day-8\.jsonl: its records come in another order than those that were judged")
    await sorted_run(tmp_path, files="joined", at_end="judge")
    assert verdicts(tmp_path).total() == 4


SAMPLES = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from(["B-0", "B-1", "B-2", None]),
        st.integers(-3, 4),
        st.sampled_from([0, 0, 0, 0, 0, 0, 0, 20_000_000, -7_200]),  # a wrong time
        st.booleans(),
    ),
    min_size=2,
    max_size=14,
)
CLOCKS_S = st.sampled_from([0, 1_000_000_000, 1_767_225_600, 1_900_000_000, 4_000_000_000])


@given(SAMPLES, st.data())
@hypothesis_settings(max_examples=30, deadline=None)
def test_two_files_and_a_clock_that_does_anything(samples: list[Any], data: st.DataObject) -> None:
    """Read in any pieces, by a machine whose clock is anything, they give the outputs of one run over both."""
    lateness = data.draw(st.sampled_from([0, "2s"]))
    limits = {"end": ["marker", "change"], "max_duration": "1h", "allowed_lateness": lateness}
    settings = settings_of(sequences=limits, run={"commit_interval": "1ms", "batch_windows": 2})
    time_s, messages = 0.0, []
    for stream, sequence, step_s, wrong_s, end in samples:
        time_s += step_s
        messages.append(line(stream, sequence, [time_s + 10_000 + wrong_s], end=end))
    files = {"a": messages[: len(messages) // 2], "b": messages[len(messages) // 2 :]}

    async def run(folder: Path, **options: Any) -> None:
        clock = TickingClock(0.001, start_us=data.draw(CLOCKS_S) * 1_000_000)
        await run_recordings(folder, settings=settings, clock=clock, files="joined", **options)

    async def both(folder: Path) -> None:
        for name, part in files.items():
            write_recording(folder / "once" / "in" / f"{name}.jsonl", part)
        await run(folder / "once", at_end="judge")
        for name, part in files.items():
            for n in sorted(data.draw(st.sets(st.integers(0, len(part)), max_size=2)) | {len(part)}):
                write_recording(folder / "pieces" / "in" / f"{name}.jsonl", part[:n])
                await run(folder / "pieces")
        await run(folder / "pieces", at_end="judge")
        pieces, once = outputs(folder / "pieces"), outputs(folder / "once")
        for role in ("alerts", "verdicts", "dead_letters", "late"):  # events may come again
            assert pieces[role] == once[role]

    with TemporaryDirectory() as folder:
        asyncio.run(both(Path(folder)))


@pytest.mark.parametrize("at_end", ["hold", "judge"])
async def test_a_later_joined_file_whose_time_of_change_is_wrong_is_refused_and_loses_nothing(
    tmp_path: Path, at_end: str
) -> None:
    for number, part in enumerate((names(0, 3), names(3, 6), names(6, 9))):
        write_recording(tmp_path / "in" / f"day-{number}.jsonl", batches_of(part, start_s=100.0 * number))
    os.utime(tmp_path / "in" / "day-1.jsonl", (1, 1))
    for _ in range(2):
        with pytest.raises(SourceError, match=r"the first 6 records of file 2 in its order all lie after .* \(1970"):
            await joined(tmp_path, at_end=at_end)
    os.utime(tmp_path / "in" / "day-1.jsonl")
    await joined(tmp_path, at_end="judge")
    assert verdicts(tmp_path) == dict.fromkeys(((name, "normal", 2) for name in names(0, 9)), 1)
