"""Tests of recording decisions outside of commits: one chain a writer, whoever writes, whatever a crash leaves."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from streamad.decisions import recording
from streamad.decisions.chain import Decided, Head, entry_in, linked
from streamad.decisions.recording import LEARNER as THE_LEARNER
from streamad.decisions.recording import Actor, DecisionLog, record
from streamad.errors import DoubtfulError, OutputError, UsageError
from streamad.messages import DecisionEntry, Feedback
from streamad.outputs.marks.place import send_feedback
from streamad.plant import Plant
from streamad.system.locks import lock_open_file
from streamad.system.opening import open_regular
from streamad.testing import ManualClock
from streamad.types import from_us
from streamad_connectors.memory import MemorySink
from tests.support.runtime.pipeline import START_US, settings_of

PAGE, LEARNER = "page", THE_LEARNER.writer
PROMOTE = Decided("promote", "reactor 0007", "kim", "authenticated", "tried")


def plant(folder: Path, url: str | None = "out/decisions.jsonl") -> Plant:
    settings = settings_of(name="reactor", sinks={} if url is None else {"decisions": url})
    return Plant(settings, folder, ManualClock(START_US), folder / "plant.yaml")


def lines(folder: Path) -> list[bytes]:
    return (folder / "out/decisions-others.jsonl").read_bytes().split(b"\n")[:-1]


def test_each_writer_has_a_chain_over_the_bytes_as_they_are_stored(tmp_path: Path) -> None:
    for writer in (PAGE, LEARNER, PAGE):
        record(plant(tmp_path), writer, [PROMOTE, PROMOTE])
    stored = lines(tmp_path)
    entries = [entry_in(line) for line in stored]
    assert [(each.writer, each.number) for each in entries] == [
        *(("reactor/page", n) for n in (1, 2)),
        *(("reactor/learner", n) for n in (1, 2)),
        *(("reactor/page", n) for n in (3, 4)),
    ]
    for writer in ("reactor/page", "reactor/learner"):
        previous = ""
        for line, entry in zip(stored, entries, strict=True):
            if entry.writer == writer:
                assert entry.previous == previous
                previous = hashlib.sha256(line[: line.rindex(b',"hash":')]).hexdigest()
                assert entry.hash == previous


def test_what_was_decided_is_returned_as_it_is_stored(tmp_path: Path) -> None:
    (entry,) = record(plant(tmp_path), PAGE, [PROMOTE])
    assert lines(tmp_path) == [msgspec.json.encode(entry)]
    assert (entry.kind, entry.subject, entry.who, entry.identity) == ("promote", "reactor 0007", "kim", "authenticated")
    assert msgspec.json.decode(lines(tmp_path)[0], type=DecisionEntry) == entry


def test_without_a_place_nothing_is_recorded(tmp_path: Path) -> None:
    assert record(plant(tmp_path, None), PAGE, [PROMOTE]) == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("n_kept", [1, 40, -2])
def test_a_line_that_a_kill_has_torn_is_cut_and_the_chain_goes_on(n_kept: int, tmp_path: Path) -> None:
    record(plant(tmp_path), PAGE, [PROMOTE, PROMOTE])
    path = tmp_path / "out/decisions-others.jsonl"
    first, second = lines(tmp_path)
    path.write_bytes(first + b"\n" + second[:n_kept])
    record(plant(tmp_path), PAGE, [PROMOTE])
    assert [entry_in(line).number for line in lines(tmp_path)] == [1, 2]


def test_an_entry_that_lacks_its_line_end_alone_stays(tmp_path: Path) -> None:
    record(plant(tmp_path), PAGE, [PROMOTE, PROMOTE])
    path = tmp_path / "out/decisions-others.jsonl"
    before = lines(tmp_path)
    path.write_bytes(b"\n".join(before))
    record(plant(tmp_path), LEARNER, [PROMOTE])
    assert lines(tmp_path)[:2] == before
    assert entry_in(lines(tmp_path)[2]).number == 1


def test_processes_of_one_id_take_turns_in_a_file(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: record(plant(tmp_path), PAGE, [PROMOTE]), range(20)))
    entries = [entry_in(line) for line in lines(tmp_path)]
    assert [each.number for each in entries] == list(range(1, 21))
    assert [each.previous for each in entries[1:]] == [each.hash for each in entries[:-1]]


def test_a_place_that_cannot_be_written_raises_before_anything_is_done(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(OutputError, match="decisions-others"):
        record(plant(tmp_path), PAGE, [PROMOTE])


@pytest.mark.parametrize("number", [2**53 - 1, 2**53, 2**64 - 1, 2**70])
def test_a_number_that_somebody_made_up_keeps_nobody_from_deciding(number: int, tmp_path: Path) -> None:
    record(plant(tmp_path), PAGE, [PROMOTE])
    decided = linked(PROMOTE, "reactor/page", Head(number - 1, "0" * 64), from_us(START_US))
    with (tmp_path / "out/decisions-others.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(decided) + b"\n")
    assert [each.number for each in record(plant(tmp_path), PAGE, [PROMOTE, PROMOTE])] == [2, 3]


def test_a_foreign_line_that_is_nested_deeply_keeps_nobody_from_deciding(tmp_path: Path) -> None:
    record(plant(tmp_path), PAGE, [PROMOTE])
    content = b'{"writer":"reactor/page","new":' + b"[" * 100_000 + b"]" * 100_000
    line = content + b',"hash":"' + hashlib.sha256(content).hexdigest().encode() + b'"}'
    with (tmp_path / "out/decisions-others.jsonl").open("ab") as file:
        file.write(line + b"\n")
    assert [each.number for each in record(plant(tmp_path), PAGE, [PROMOTE])] == [2]


@pytest.mark.parametrize("content", [b"notes of a colleague", b"a line\nand one without an end", b'{"type":"alert"'])
def test_only_an_entry_is_cut_as_torn(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "out/decisions-others.jsonl"
    path.parent.mkdir()
    path.symlink_to(tmp_path / "notes")
    (tmp_path / "notes").write_bytes(content)
    record(plant(tmp_path), PAGE, [PROMOTE])
    assert path.read_bytes().startswith(content + b"\n" + b'{"type":"decision",')
    record(plant(tmp_path), PAGE, [PROMOTE])
    assert entry_in(lines(tmp_path)[-1]).number == 2


def test_text_that_utf_8_does_not_hold_is_recorded(tmp_path: Path) -> None:
    actor = Actor("page", "kim\udcff", "claimed")
    with (
        pytest.raises(UsageError),
        DecisionLog(plant(tmp_path)).deciding(actor, actor.decides("k", "s\udcff", "\udcff")),
    ):
        raise UsageError("\udcff")
    assert [(each.who, each.reason) for each in map(entry_in, lines(tmp_path))] == [("kim\\udcff", "\\udcff")] * 2


def test_a_secret_in_a_reason_or_a_detail_stays_out_of_the_log(tmp_path: Path) -> None:
    actor = Actor("page", "kim", "claimed")
    url = "https://eve:geheim@host/x?token=geheim"
    DecisionLog(plant(tmp_path)).record(actor, actor.decides("promote", "reactor 0007", f"as {url} says", comment=url))
    (line,) = lines(tmp_path)
    assert b"geheim" not in line
    assert (entry_in(line).reason, entry_in(line).details["comment"]) == (
        "as https://***@host/x?token=*** says",
        "https://***@host/x?token=***",
    )


async def test_a_mark_of_which_no_answer_came_is_doubtful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unanswered(_: MemorySink) -> None:
        raise OutputError("no answer within 30 s")

    monkeypatch.setattr(MemorySink, "flush", unanswered)
    settings = settings_of(name="reactor", sinks={"decisions": "out/decisions.jsonl"}, marks="memory:marks")
    marked = Plant(settings, tmp_path, ManualClock(START_US), tmp_path / "plant.yaml")
    mark = Feedback(alert_id="a" * 32, judgement="confirmed", created_at=from_us(START_US))
    with pytest.raises(DoubtfulError, match="no answer within 30 s"):
        await send_feedback(marked, [mark])
    assert [entry_in(line).kind for line in lines(tmp_path)] == ["mark", "doubtful"]


def test_processes_of_a_machine_take_turns_in_a_place_without_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "_WAIT_S", 0.0)
    in_topic = plant(tmp_path, "memory:decided")
    assert in_topic.config is not None
    in_topic.config.write_text("")
    descriptor = open_regular(in_topic.config)
    try:
        assert lock_open_file(descriptor)
        with pytest.raises(OutputError, match="another program has written decisions"):
            record(in_topic, PAGE, [PROMOTE])
    finally:
        os.close(descriptor)
    assert [each.number for each in record(in_topic, PAGE, [PROMOTE])] == [1]


def test_without_the_config_by_which_processes_take_turns_nothing_is_decided(tmp_path: Path) -> None:
    in_topic = plant(tmp_path, "memory:decided")
    with pytest.raises(OutputError, match=r"nothing was decided: .*plant\.yaml"):
        record(in_topic, PAGE, [PROMOTE])


def test_an_error_is_told_though_the_config_is_gone_meanwhile(tmp_path: Path) -> None:
    in_topic = plant(tmp_path, "memory:decided")
    config = tmp_path / "plant.yaml"
    config.write_text("")
    actor = Actor("page", "kim", "claimed")

    def overtaken() -> None:
        with DecisionLog(in_topic).deciding(actor, PROMOTE):
            config.unlink()
            raise UsageError("overtaken")

    with pytest.raises(UsageError, match="overtaken"):
        overtaken()
