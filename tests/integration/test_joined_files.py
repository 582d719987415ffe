"""Joined files through the command line: what does not continue them is one line and exit 1, and nothing is lost."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime.cli import NEAREST, CliPlant, L
from tests.support.runtime.pipeline import START_US

MODEL = NEAREST
N_DAYS = 4
BATCHES = 9


def days() -> list[bytes]:
    """Four days of one reactor, one sample a message; batches go on over midnight."""
    messages = [
        json.dumps(
            {
                "stream": "r1",
                "sequence": f"B-{number}",
                "time": START_US / 1e6 + number * L + i,
                "values": {"temp": 20.0 + 4 * i, "pressure": 3.0 if number != 4 else 12.0},
            }
        )
        for number in range(BATCHES)
        for i in range(L)
    ]
    each = len(messages) // N_DAYS
    return ["".join(f"{text}\n" for text in messages[n * each : (n + 1) * each]).encode() for n in range(N_DAYS)]


class Days:
    """A plant whose recordings are days; ``day(9)`` is the second one's path."""

    def __init__(self, plant: CliPlant) -> None:
        self.plant = plant
        self.configure()
        shutil.rmtree(plant.folder / "recordings")
        (plant.folder / "recordings").mkdir()

    def configure(self, **options: Any) -> None:
        source = {"url": "recordings/day-*", "options": {"files": "joined", **options}}
        self.plant.write_config(source=source, sequences={"end": ["change"]})

    def day(self, number: int) -> Path:
        return self.plant.folder / "recordings" / f"day-{number}.jsonl"

    def write(self, *numbers: int) -> None:
        for number in numbers:
            self.day(number).write_bytes(days()[number - 8])

    def run(self) -> dict[str, Any]:
        """Run and return the report."""
        outcome = self.plant("run --quiet --json")
        assert outcome.code == 0, outcome.err
        report: dict[str, Any] = outcome.last_json
        return report

    def verdicts(self) -> list[dict[str, Any]]:
        """All verdicts; their scores to four digits, as the last ones differ with the size of a batch on some CPUs."""
        found = self.plant.lines("verdicts")
        for verdict in found:
            del verdict["created_at"]
            if verdict["score"] is not None:
                verdict["score"] = f"{verdict['score']:.4g}"
        return found


@pytest.fixture
def joined(plant: CliPlant) -> Days:
    return Days(plant)


Undisturbed = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def undisturbed(
    trained_nearest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Undisturbed:
    """Gives the verdicts of one run over all days, in a plant of its own."""

    def run() -> list[dict[str, Any]]:
        shutil.copytree(trained_nearest, tmp_path / "undisturbed")
        other = Days(CliPlant(tmp_path / "undisturbed", capsys, monkeypatch, MODEL))
        other.write(8, 9, 10, 11)
        other.run()
        return other.verdicts()

    return run


def grow(joined: Days) -> None:
    """A finished file grows."""
    with joined.day(8).open("ab") as file:
        file.write(days()[3])


def insert(joined: Days) -> None:
    """A new file sorts before the position."""
    joined.plant.folder.joinpath("recordings", "day-8b.jsonl").write_bytes(days()[3])


def remove(joined: Days) -> None:
    """A file above the low watermark is gone: B-4 began in it."""
    joined.day(9).unlink()


def replace(joined: Days) -> None:
    """Another recording stands where one was judged."""
    joined.day(8).write_bytes(days()[0].replace(b"B-0", b"C-0"))


def cut(joined: Days) -> None:
    """The file that was read last is shorter."""
    joined.day(9).write_bytes(days()[1][:-100])


def damage(joined: Days) -> None:
    """A new file cannot be read."""
    joined.day(10).with_name("day-10.jsonl.gz").write_bytes(b"no gzip")


def damage_amid(joined: Days) -> None:
    """A new file ends amid its packed bytes, and another one follows."""
    joined.day(10).with_name("day-10.jsonl.gz").write_bytes(gzip.compress(days()[2])[:-20])
    joined.write(11)


def separate(joined: Days) -> None:
    """The checkpoint is of joined files, the config reads separate ones."""
    joined.configure(files="separate")


def rename_folder(joined: Days) -> None:
    """The same files come under another URL."""
    joined.configure()
    text = joined.plant.config.read_text().replace("recordings/day-*", "recordings")
    joined.plant.config.write_text(text)


CASES: list[tuple[Callable[[Days], None], tuple[str, ...]]] = [
    (grow, ("day-8.jsonl: grew after it was finished", "put what was added into a new file")),
    (insert, ("day-8b.jsonl: is new, but comes before recordings/day-9.jsonl", "give it a later name")),
    (remove, ("day-9.jsonl: is gone, but holds samples without a verdict", "put it back")),
    (replace, ("day-8.jsonl: no longer holds the records that were judged", "put the file back")),
    (cut, ("day-9.jsonl: no longer holds the records that were judged", "put the file back")),
    (damage, ("day-10.jsonl.gz: cannot be read", "the file may be damaged")),
    (damage_amid, ("day-10.jsonl.gz: cannot be read", "the file may be damaged")),
    (separate, ("the checkpoint was made with files: joined", "set source.options.files to joined")),
    (rename_folder, ("the checkpoint has these files as recordings/day-*", "put the URL back")),
]


@pytest.mark.parametrize(("spoil", "words"), CASES)
def test_what_does_not_continue_is_one_line_and_once_mended_nothing_is_lost(
    spoil: Callable[[Days], None], words: tuple[str, ...], joined: Days, undisturbed: Undisturbed
) -> None:
    joined.write(8, 9)
    assert joined.run()["counters"]["held"] == 1
    before = {role: joined.plant.lines(role) for role in ("alerts", "verdicts", "dead_letters", "late")}
    spoil(joined)
    for _ in range(2):
        joined.plant("run --quiet").assert_one_line_error(*words)
        after = {role: joined.plant.lines(role) for role in before}
        if spoil is damage_amid:  # what was read before the damage may have its verdicts already
            assert after["verdicts"][: len(before["verdicts"])] == before["verdicts"]
        else:
            assert after == before
    shutil.rmtree(joined.plant.folder / "recordings")
    (joined.plant.folder / "recordings").mkdir()
    joined.configure()
    if spoil is damage_amid:
        joined.write(8, 9, 11)
        joined.day(10).with_name("day-10.jsonl.gz").write_bytes(gzip.compress(days()[2]))
    else:
        joined.write(8, 9, 10, 11)
    joined.run()
    assert joined.verdicts() == undisturbed()


def test_a_file_below_the_low_watermark_may_be_gone(joined: Days, undisturbed: Undisturbed) -> None:
    joined.write(8, 9)
    joined.run()
    joined.day(8).unlink()  # all its batches but B-2 have verdicts, and that one ended on day 9
    joined.run()
    joined.write(10, 11)
    joined.run()
    assert joined.verdicts() == undisturbed()


def test_separate_files_are_not_joined_by_a_change_of_the_config(joined: Days) -> None:
    joined.write(8, 9)
    joined.configure(files="separate")
    joined.run()
    before = joined.verdicts()
    joined.configure()
    words = ("the checkpoint was made with files: separate", "set source.options.files to separate")
    joined.plant("run --quiet").assert_one_line_error(*words)
    assert joined.verdicts() == before


def test_of_a_sequence_in_two_separate_files_each_part_is_judged(joined: Days) -> None:
    """As docs/guide/files.md says; joined, it has one verdict."""
    joined.write(8, 9)
    joined.configure(files="separate")
    joined.run()
    parts = [verdict for verdict in joined.verdicts() if verdict["sequence"] == "B-2"]
    assert len(parts) == 2
    assert "unscorable" not in {verdict["decision"] for verdict in parts}
    assert sum(verdict["n_samples"] for verdict in parts) == L


def test_the_summary_says_how_many_sequences_are_held(joined: Days) -> None:
    joined.write(8)
    outcome = joined.plant("run --quiet")
    assert outcome.code == 0
    assert "1 sequence held: the next run may bring the rest" in outcome.out
    other = days()[1].replace(b'"r1"', b'"r2"')
    joined.day(9).write_bytes(days()[1] + other)
    assert "2 sequences held: the next run may bring the rest" in joined.plant("run --quiet").out
    joined.configure(at_end="judge")
    assert "held" not in joined.plant("run --quiet").out
    counts = [verdict["n_samples"] for verdict in joined.verdicts() if verdict["stream"] == "r1"]
    assert sum(counts) == 2 * days()[0].count(b"\n")
