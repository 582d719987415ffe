"""How fast streamad does a job beside Quix Streams, Faust and plain loops with aiokafka and confluent-kafka.

The job: JSON messages of a topic of 4 partitions (24 channels; chunked 50 x 24, then single samples), grouped by stream
and sequence; each end marker makes a window, which gets a score that costs nothing and becomes one output message. Each
peer is a file of ``peers_of/``, written as its own documentation says. streamad has a free scorer and does all else as
ever: clocks, order, lateness, calibration, exactly-once output with its progress.

In every round each peer reads the same backlog in a process and a consumer group of its own, on one broker. The outputs
are read back: each window must be there with all its samples, and the markers of transactions are counted, too. A peer
that cannot be installed, fails or loses a window has its reason in the table. Time runs from the first message to the
last commit; CPU is that of the process. ``bare`` only fetches and decodes: the bound of any peer in Python.
Peers that streamad does not need live in an environment that is made once in the cache (``peers_of/requirements.txt``).
Run on a quiet machine: ``python benchmarks/peers.py [--rounds 3] [--peers quix faust] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import subprocess
import sys
import time
import venv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "speed")]

from kafka_bench_plant import CHANNELS, PARTITIONS, SAMPLES, STREAMS, Plant, feed_backlog, plant_on_a_broker  # noqa: E402
from other_programs import OtherPrograms  # noqa: E402

from tests.support.kafka.broker import create_topics, read_committed  # noqa: E402

REQUIREMENTS = HERE / "peers_of" / "requirements.txt"
OURS_NEED = ("streamad-monitor", "aiokafka", "pysimdjson")
PEERS_NEED = ("confluent-kafka", "quixstreams", "faust-streaming")
LIMIT_S = 300.0
FIGURES = ("samples_per_s", "cpu_us_per_sample", "peak_rss_mb")


class Peer(NamedTuple):
    """A peer: its file, what it promises for an output, whether it runs in the peers' environment, its modes."""

    file: str
    promise: str
    is_foreign: bool = True
    modes: tuple[str, ...] = ()


class Bench(NamedTuple):
    """The broker's plant, the Python of the peers, and the peers to run."""

    plant: Plant
    python: Path | None
    names: list[str]


PEERS = {
    "streamad": Peer("", "exactly once", is_foreign=False),
    "bare": Peer("", "reads and decodes only", is_foreign=False),
    "aiokafka": Peer("plain_aiokafka.py", "at least once", is_foreign=False),
    "aiokafka-transactions": Peer(
        "plain_aiokafka.py", "at least once; chunked exactly once", is_foreign=False, modes=("transactions",)
    ),
    "confluent": Peer("plain_confluent.py", "at least once"),
    "quix": Peer("quix_app.py", "at least once"),
    "quix-items": Peer("quix_app.py", "at least once", modes=("items",)),
    "quix-exactly-once": Peer("quix_app.py", "exactly once", modes=("items", "exactly-once")),
    "faust": Peer("faust_app.py", "at least once"),
    "faust-exactly-once": Peer("faust_app.py", "exactly once", modes=("exactly-once",)),
}
OURS, BARE = "streamad", "bare"


class PeerError(Exception):
    """Raised when a peer gives no result; says why in one line."""


# --- environments ----------------------------------------------------------------------------------------------------


def peers_python() -> Path:
    """Return the Python of the peers' environment, made in the cache if need be; raises PeerError."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamad" / "peers"
    digest = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = cache / digest
    python, is_whole = folder / "bin" / "python", folder / "installed"
    if not is_whole.exists():
        print(f"making the peers' environment in {folder} (once)", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", REQUIREMENTS]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PeerError(f"cannot be installed: {last_line(done.stderr)}")
        is_whole.touch()
    return python


def versions(python: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the versions of those distributions that ``python`` has."""
    code = (
        "import sys, json, importlib.metadata as m\n"
        "found = {d.metadata['Name']: d.version for d in m.distributions()}\n"
        "print(json.dumps({n: found[n] for n in sys.argv[1:] if n in found}))"
    )
    done = subprocess.run([python, "-c", code, *names], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")[:200]


# --- one run ---------------------------------------------------------------------------------------------------------


def run(bench: Bench, name: str, kind: str, n: int, number: int) -> dict[str, Any]:
    """Run a peer over the backlog to its end; return its figures. Raises PeerError, also if outputs are missing."""
    plant, peer, group = bench.plant, PEERS[name], f"{name}-{kind}-{number}"
    topic, output = f"samples-{kind}", f"{group}.verdicts"
    executable: Path | str = sys.executable
    if peer.is_foreign:
        if bench.python is None:
            raise PeerError("its environment could not be made")
        executable = bench.python
    pipeline = HERE / "speed" / "kafka_pipeline.py"
    if name == BARE:
        return with_rates(figures_of([executable, pipeline, "--child", "bare", plant.bootstrap, topic, kind]))
    if name == OURS:
        config = plant.config(kind, group)
        command = [pipeline, "--child", "worker", config, str(n), "--free"]
    else:
        asyncio.run(create_topics(plant.bootstrap, {output: PARTITIONS}))
        command = [HERE / "peers_of" / peer.file, plant.bootstrap, topic, output, group, str(n), *peer.modes]
    folder = plant.folder / group
    folder.mkdir()
    result = figures_of([executable, *command], folder, is_foreign=peer.is_foreign)
    rows = asyncio.run(read_committed(plant.bootstrap, output))
    result["repeated"] = check_outputs([row.value for row in rows if row.value is not None], n)
    result["transaction_markers"] = asyncio.run(end_of(plant.bootstrap, output)) - len(rows)
    if result["samples"] != n * SAMPLES:
        raise PeerError(f"read {result['samples']} samples of {n * SAMPLES}")
    return with_rates(result)


def with_rates(result: dict[str, Any]) -> dict[str, Any]:
    """Return a run's figures with its speed by time and by CPU."""
    seconds = result.get("committed_s", result["wall_s"])
    return {
        "repeated": 0,
        "transaction_markers": 0,
        **result,
        "samples_per_s": result["samples"] / seconds,
        "cpu_us_per_sample": 1e6 * result["cpu_s"] / result["samples"],
    }


def figures_of(command: list[Any], folder: Path | None = None, *, is_foreign: bool = False) -> dict[str, Any]:
    """Run a child in ``folder`` and return its last line, decoded; raises PeerError."""
    environment = {k: v for k, v in os.environ.items() if not (is_foreign and k.startswith("PYTHON"))}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise PeerError(f"no result within {LIMIT_S:.0f} s") from None
    if done.returncode or not done.stdout.rstrip().endswith("}"):
        raise PeerError(f"failed: {last_line(done.stderr)}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check_outputs(values: list[bytes], n: int) -> int:
    """Check that there is an output for each of ``n`` windows, with all samples; return how many are repetitions."""
    decode = msgspec.json.Decoder().decode
    outputs = [decode(value) for value in values]
    found = Counter((each["stream"], each["sequence"]) for each in outputs)
    n_samples = {(each["stream"], each["sequence"]): each["n_samples"] for each in outputs}
    if len(found) != n or sum(n_samples.values()) != n * SAMPLES:
        raise PeerError(f"wrote {len(found)} windows of {sum(n_samples.values())} samples, not {n} of {n * SAMPLES}")
    return found.total() - n


async def end_of(bootstrap: str, topic: str) -> int:
    """Return the sum of the partitions' end offsets, which count the markers of transactions as well."""
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        ends = await consumer.end_offsets([TopicPartition(topic, number) for number in range(PARTITIONS)])
    return sum(ends.values())


# --- the whole -------------------------------------------------------------------------------------------------------


def side_by_side(bench: Bench, kind: str, n: int, n_rounds: int) -> dict[str, Any]:
    """Run the peers in turn over one backlog of ``n`` sequences; return medians, and ratios within the rounds."""
    plant, names = bench.plant, bench.names
    asyncio.run(create_topics(plant.bootstrap, {f"samples-{kind}": PARTITIONS}))
    n_messages = asyncio.run(feed_backlog(plant.context, plant.url(kind), kind, n))
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    errors: dict[str, str] = {}
    for number in range(n_rounds):
        for name in (each for each in names if each not in errors):
            try:
                rounds[name].append(run(bench, name, kind, n, number))
            except PeerError as error:
                if name == OURS:
                    raise SystemExit(f"{name}: {error}") from error
                errors[name] = str(error)
            print(f"{kind} {number} {name}: {errors.get(name) or rounds[name][-1]}", file=sys.stderr)
    found = {name: compared(rounds[name], rounds[OURS]) for name in names if name not in errors}
    peers = {name: {"promises": PEERS[name].promise, **(found.get(name) or {"error": errors[name]})} for name in names}
    return {"messages": n_messages, "samples": n * SAMPLES, "windows": n, "peers": peers}


def compared(rounds: list[dict[str, Any]], ours: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of a peer, and how many times streamad's speed is its own, by time and by CPU."""
    speed, cpu = "samples_per_s", "cpu_us_per_sample"
    pairs = list(zip(ours, rounds, strict=True))
    return {
        **{figure: round(median(each[figure] for each in rounds), 1) for figure in FIGURES},
        "repeated": sum(each["repeated"] for each in rounds),
        "in_transactions": all(each["transaction_markers"] > 0 for each in rounds),
        "streamad_times_as_fast": round(median(us[speed] / each[speed] for us, each in pairs), 2),
        "streamad_times_as_fast_by_cpu": round(median(each[cpu] / us[cpu] for us, each in pairs), 2),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures that ``--json`` prints."""
    names = [OURS, *(name for name in options.peers if name != OURS)]
    python: Path | None = options.peers_python
    found = versions(Path(sys.executable), OURS_NEED)
    if python is None and any(PEERS[name].is_foreign for name in names):
        try:
            python = peers_python()
        except PeerError as error:
            print(f"the peers' environment {error}", file=sys.stderr)
    if python is not None:
        found |= versions(python, PEERS_NEED)
    others = OtherPrograms()
    sizes = {"chunked": options.sequences, "single": max(STREAMS, options.sequences // 8)}
    figures: dict[str, Any] = {
        "channels": CHANNELS,
        "samples_per_sequence": SAMPLES,
        "partitions": PARTITIONS,
        "rounds": options.rounds,
        "cores": os.cpu_count(),
        "at": time.strftime("%Y-%m-%d"),
        "versions": found,
    }
    with plant_on_a_broker() as plant:
        for kind in options.kinds:
            figures[kind] = side_by_side(Bench(plant, python, names), kind, sizes[kind], options.rounds)
    return {**figures, "others": others.cores()}


def table(figures: dict[str, Any], kind: str) -> str:
    """Return the table of a kind of messages, in Markdown."""
    lines = [
        f"{kind}, {figures[kind]['messages']} messages, {figures[kind]['samples']} samples, "
        f"{figures[kind]['windows']} windows",
        "",
        "| peer | promises | in transactions | samples/s | CPU µs a sample | memory, MB | streamad: times as fast "
        "| by CPU |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in figures[kind]["peers"].items():
        cells = [name, row["promises"]]
        if "error" in row:
            cells += ["", row["error"], "", "", "", ""]
        else:
            cells += ["yes" if row["in_transactions"] else "no"]
            cells += [f"{row['samples_per_s']:,.0f}", f"{row['cpu_us_per_sample']:.1f}", f"{row['peak_rss_mb']:.0f}"]
            cells += [f"{row['streamad_times_as_fast']:.2f}", f"{row['streamad_times_as_fast_by_cpu']:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), help="streamad always runs")
    parser.add_argument("--kinds", nargs="+", choices=("chunked", "single"), default=["chunked", "single"])
    parser.add_argument("--sequences", type=int, default=24_000, help="chunked ones; an eighth as single samples")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers-python", type=Path, help="a Python that has them (default: one made in the cache)")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    options = parser.parse_args()
    figures = measure(options)
    if options.json:
        print(json.dumps(figures))
        return
    print(f"{figures['cores']} cores, of which other programs took {figures['others']}; {figures['versions']}")
    for kind in options.kinds:
        print(f"\n{table(figures, kind)}")


if __name__ == "__main__":
    main()
