"""The configs of docs/guide/sequences.md cut sequences as the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.ingest.table.reading import read_table
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.metrics import Counters
from streamad.types import FinishedSequence, Record, RecordBatch

T = 1_772_352_000
PAGE = (Path(__file__).resolve().parents[3] / "docs" / "guide" / "sequences.md").read_text(encoding="utf-8")


def block(language: str, after: str) -> str:
    """Return the first block of ``language`` in the section ``after``."""
    section = PAGE[PAGE.index(f"### {after}\n") :]
    found = re.search(rf"```{language}\n(.*?)```", section, flags=re.DOTALL)
    assert found is not None
    return found[1]


def cut(section: str, messages: list[dict[str, Any]], **more: Any) -> tuple[list[tuple[str, str, int]], Counters]:
    """Return the sequences that the config of a section makes of messages, with the reason and samples of each."""
    found, counters = sequences_of(section, messages, **more)
    return [(one.sequence, one.reason, one.n_samples) for one in found], counters


def sequences_of(section: str, messages: list[dict[str, Any]], **more: Any) -> tuple[list[FinishedSequence], Counters]:
    """Return the sequences that the config of a section makes of messages."""
    config: dict[str, Any] = yaml.safe_load(block("yaml", section))
    settings = Settings(**{"channels": [{"name": "temp"}], "source": {"url": "recordings/*.jsonl"}, **config, **more})
    counters, plant = Counters(), settings
    decoder = Decoder(plant.decode, plant.channels, plant.route_field, plant.sequences.while_)
    intake = Intake("p", settings, decoder, counters)
    records = tuple(Record(at, json.dumps({"time": T + at, **message}).encode()) for at, message in enumerate(messages))
    ended = intake.take(RecordBatch("p", records, len(records)), 0) + intake.end_of_input(0)
    found = [closed.sequence for closed in ended]
    assert not counters.dead_letters
    return found, counters


def test_a_state_cuts_as_the_page_says() -> None:
    states = ["IDLE", "RUN", " run ", 1, "1.0", "STOP", None, True]
    found, counters = cut("States", [{"stream": "r", "values": {"temp": 1.0}, "state": state} for state in states])
    ran = [(reason, n) for _, reason, n in found]
    assert (ran, counters.outside) == ([("while", 4), ("end_of_input", 1)], 3)


def test_words_cut_and_name_as_the_page_says() -> None:
    sample: dict[str, Any] = {"type": "sample", "v": {"temp": 1.0}}
    begin, end = {"type": "batch_start", "recipe": "A"}, {"type": "Batch_End"}
    messages = [sample, {**begin, "batch_id": "B1"}, sample, sample, {**end, "batch_id": "B1"}, sample, end]
    messages += [{**begin, "batch_id": "B2"}, sample, {**begin, "batch_id": "B3"}, sample, {"type": "abort"}]
    more = {"models": {"field": "recipe"}}
    found, counters = cut("Words", [{"unit": "r", **message} for message in messages], **more)
    assert found == [("B1", "marker", 2), ("B2", "begin", 1), ("B3", "marker", 1)]
    assert (counters.outside, counters.unbegun_ends, counters.samples) == (2, 1, 6)


def test_an_end_word_with_an_unknown_id_is_counted() -> None:
    sample: dict[str, Any] = {"type": "sample", "v": {"temp": 1.0}}
    begin, end = {"type": "batch_start", "batch_id": "B1"}, {"type": "batch_end", "batch_id": "B1"}
    messages = [begin, sample, {**end, "batch_id": "b1"}, sample, end, end]
    found, counters = cut("Words", [{"unit": "r", **message} for message in messages], models={"field": "recipe"})
    assert found == [("B1", "marker", 2)]
    assert counters.unbegun_ends == 1


@pytest.mark.parametrize(
    ("at", "late", "cuts"),
    [
        (0, "batch_start", [(False, 2)]),
        (3, "batch_start", [(True, 1)]),
        (3, "batch_end", [(True, 3)]),
        (1, "batch_end", [(False, 1)]),
    ],
)
def test_what_a_late_word_begins_or_cuts_is_partial(at: int, late: str, cuts: list[tuple[bool, int]]) -> None:
    """The word's own time is 1 s before the second of three samples; it comes behind ``at`` of them, or in time."""
    samples = [{"time": T + second, "v": {"temp": 1.0}} for second in (1, 3, 4)]
    word = {"type": late, "batch_id": "A", "time": T + 2}
    other = {"type": "batch_end" if late == "batch_start" else "batch_start", "batch_id": "A"}
    messages = [*samples[:at], word, *samples[at:]]
    if late == "batch_start":
        messages += [{"time": T + 5, "v": {"temp": 1.0}}] * (at > 0) + [{**other, "time": T + 6}]
    else:
        messages = [{**other, "time": T}, *messages]
    found = sequences_of("Words", [{"unit": "r", **message} for message in messages], models={"field": "recipe"})[0]
    assert [(one.partial, one.n_samples) for one in found] == cuts


def test_tags_cut_and_name_as_the_page_says() -> None:
    tags = [("TI101", 1.0), ("BatchID", "B1"), ("State", "RUN"), ("TI101", 2.0), ("TI101", 3.0), ("State", "IDLE")]
    tags += [("TI101", 4.0), ("State", "run"), ("BatchID", 7), ("TI101", 5.0)]
    found, counters = cut("Tags", [{"unit": "r", "tag": tag, "value": value} for tag, value in tags])
    assert found == [("B1", "while", 2), ("7", "end_of_input", 1)]
    assert (counters.outside, counters.before_tag) == (2, 1)


def test_a_table_cuts_as_the_page_says(tmp_path: Path) -> None:
    config: dict[str, Any] = yaml.safe_load(block("yaml", "A table of batches"))
    (tmp_path / "batches.csv").write_text(block("csv", "A table of batches"), encoding="utf-8")
    settings = Settings(**config, source={"url": "recordings/*.csv"})
    table = read_table(settings, tmp_path)
    counters = Counters()
    decoder = Decoder(settings.decode, settings.channels, settings.route_field)
    intake = Intake("p", settings, decoder, counters, table=table)
    times = ["07:59:59", "08:00:00", "09:29:59", "09:30:00", "10:00:00", "11:00:00"]
    records = tuple(
        Record(at, f'{{"unit": "reactor-1", "ts": "2026-03-01 {time}", "temp": {at}}}'.encode())
        for at, time in enumerate(times)
    )
    found = [closed.sequence for closed in intake.take(RecordBatch("p", records, len(records)), 0)]
    assert [(one.sequence, one.reason, one.routes) for one in found] == [("B-1041", "table", ("PX-12",))]
    assert found[0].values[:, 0].tolist() == [1.0, 2.0]
    assert counters.outside == 2
    assert intake.end_of_input(0) == []  # B-1042 runs still
    assert intake.open_sequences == 1


def test_the_page_names_the_columns_of_another_table() -> None:
    comment = re.search(r"# other columns: (\{.*\})", block("yaml", "A table of batches"))
    assert comment is not None
    config = {"end": ["table"], "table": yaml.safe_load(comment[1])}
    table = Settings(channels=[{"name": "x"}], source={"url": "x"}, sequences=config).sequences.table
    assert table is not None
    assert (table.stream, table.sequence, table.begin, table.end) == ("unit", "batch", "start", "stop")
