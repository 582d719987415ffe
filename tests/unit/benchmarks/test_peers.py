"""What the benchmark of peers accepts as the same job."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmarks.peers import OURS_NEED, PEERS, PEERS_NEED, REQUIREMENTS, PeerError, check_outputs, versions

FILES = Path(__file__).resolve().parents[3] / "benchmarks" / "peers_of"


def output(sequence: str, n_samples: int = 50) -> bytes:
    return json.dumps({"stream": "a", "sequence": sequence, "n_samples": n_samples}).encode()


def test_repeated_outputs_are_counted() -> None:
    assert check_outputs([output("1"), output("2"), output("1")], 2) == 1


@pytest.mark.parametrize("outputs", [[output("1")], [output("1"), output("2", 49)]])
def test_a_missing_window_or_sample_is_an_error(outputs: list[bytes]) -> None:
    with pytest.raises(PeerError, match="not 2 of 100"):
        check_outputs(outputs, 2)


def test_an_offset_to_commit_has_no_sample_of_an_open_sequence_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(FILES), *sys.path])
    from job import NAMES, OpenSequences, rows_of  # noqa: PLC0415

    def single(sequence: str, *, end: bool = False) -> dict[str, object]:
        return {"stream": "a", "sequence": sequence, "values": dict.fromkeys(NAMES, 1.0), "end": end}

    opened = OpenSequences()
    assert opened.safe_offset == 0
    assert opened.push(single("1"), 0) is None
    assert opened.push(single("2"), 1) is None
    assert opened.safe_offset == 0
    finished = opened.push(single("1", end=True), 2)
    assert finished is not None
    assert (finished[:2], len(finished[2])) == (("a", "1"), 2)
    assert opened.safe_offset == 1
    opened.push(single("2", end=True), 3)
    assert opened.safe_offset == 4
    assert rows_of({"times": [0.0, 0.1], "values": [[1.0], [2.0]]}) == [[1.0], [2.0]]


def test_each_peer_has_a_file_and_pinned_requirements() -> None:
    named = {peer.file for peer in PEERS.values() if peer.file}
    assert {path.name for path in FILES.glob("*.py")} == {*named, "job.py"}
    pins = [line for line in REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    assert pins
    assert all("==" in line for line in pins)


def test_a_version_is_that_of_the_python_that_runs_it() -> None:
    assert not {*OURS_NEED} & {*PEERS_NEED}
    named = {line.partition("==")[0] for line in REQUIREMENTS.read_text().splitlines()}
    assert {*PEERS_NEED} <= named
    assert not {*OURS_NEED} & named
    assert versions(Path(sys.executable), ["msgspec", "no-such-distribution"]) == {"msgspec": version("msgspec")}
