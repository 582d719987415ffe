"""``streamad simulate``: simulates a plant with known faults, as recordings with a config, or fed to a broker."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from streamad.commands.shared.console import Bar, JsonOption, err, note, out, print_json
from streamad.commands.shared.options import local_path
from streamad.commands.simulate.feed import feed_plant
from streamad.errors import OutputError, UsageError
from streamad.settings.template import ChannelLine, Entry, Section, judging_sections, render
from streamad.simulation.faults import CHANNELS
from streamad.simulation.messages import LABELS_NAME, RECORDINGS_NAME, write_recordings
from streamad.simulation.recordings import Recording
from streamad.simulation.recordings import simulate as simulate_batches
from streamad.system.files import write_atomically, writing

_CONFIG = "plant.yaml"
_WINDOW = 128  # batches of this plant have 99 to 135 samples, most of them about 108 (docs/model/simulation.md)


_ONLY_TO_FILES = ("normal", "faulty", "force")
_ONLY_FED = ("config", "speed", "start", "batches", "duration", "fault_share", "chunk", "labels")
_FED = "Fed to a broker (--to)"


def simulate(
    context: typer.Context,
    *,
    out_dir: Annotated[
        Path | None, typer.Option("--out", callback=local_path, help="Write recordings to this folder.", metavar="DIR")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="Send the samples of the running plant to a broker instead: kafka://HOST:PORT/TOPIC, or "
            "mqtt://HOST/TOPIC with {stream} in it.",
            metavar="URL",
        ),
    ] = None,
    train: Annotated[
        int, typer.Option(min=0, help="Normal batches to train on; --to begins with the batch after them.")
    ] = 200,
    normal: Annotated[int, typer.Option(min=0, help="Normal batches to monitor.")] = 300,
    faulty: Annotated[int, typer.Option(min=0, help="Faulty batches to monitor.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same plant.")] = 0,
    streams: Annotated[int, typer.Option(min=1, max=1000, help="Number of fermenters.")] = 2,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier simulation.")] = False,
    speed: Annotated[str, typer.Option(help="max, real, or a factor of real time.", rich_help_panel=_FED)] = "3600",
    batches: Annotated[
        int | None,
        typer.Option(min=1, help="Number of batches of all fermenters; default: no end.", rich_help_panel=_FED),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option("--for", help="Duration of the feed, such as 10m.", metavar="TIME", rich_help_panel=_FED),
    ] = None,
    fault_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of faulty batches.", rich_help_panel=_FED)
    ] = 0.25,
    chunk: Annotated[int, typer.Option(min=1, help="Samples in a message.", rich_help_panel=_FED)] = 1,
    labels: Annotated[
        Path | None,
        typer.Option(help="Append the label of each batch to this CSV file.", metavar="FILE", rich_help_panel=_FED),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            help="First time of the samples (RFC 3339, or 30d: ago), which stay ten minutes apart. Default: the "
            "current time, with samples closer together by the factor --speed.",
            metavar="TIME",
            rich_help_panel=_FED,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            help="A plant's config with brokers and credentials, for --to kafka:///TOPIC. [default: plant.yaml]",
            metavar="FILE",
            rich_help_panel=_FED,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate a plant of fermenters: recordings, labels and a plant.yaml (--out), or live samples to a broker (--to).

    DIR/train holds normal batches for training, DIR/live later batches, normal and faulty, to monitor; labels.csv
    beside each lists the faults. The plant.yaml is ready for use. With --to each sample is sent when it is due.

    Example: streamad simulate --out demo
    """
    _refuse_mixture(context, out_dir is not None, to is not None)
    # The live batches begin on the first fermenter, so that none of them overlaps a batch of the training.
    first_live = -(-train // streams) * streams
    if to is not None:
        feed_plant(
            to,
            config=config,
            speed=speed,
            start=start,
            batches=batches,
            duration=duration,
            fault_share=fault_share,
            chunk=chunk,
            labels=labels,
            first_index=first_live,
            seed=seed,
            streams=streams,
            as_json=as_json,
        )
        return
    assert out_dir is not None
    if train + normal + faulty == 0:
        raise UsageError("nothing to simulate: --train, --normal and --faulty are all 0")
    counts = {"train": (train, 0), "live": (normal, faulty)}
    _write(out_dir, counts, first_live, seed=seed, streams=streams, force=force, as_json=as_json)


def _refuse_mixture(context: typer.Context, to_files: bool, fed: bool) -> None:
    if to_files == fed:
        raise UsageError("name either --out DIR (recordings) or --to URL (fed to a broker)")
    foreign = _ONLY_TO_FILES if fed else _ONLY_FED
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in foreign and source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"{parameter.opts[0]} goes with {'--out' if fed else '--to'}, not with the other")


def _write(
    out_dir: Path,
    counts: dict[str, tuple[int, int]],
    first_live: int,
    *,
    seed: int,
    streams: int,
    force: bool,
    as_json: bool,
) -> None:
    folders = {name: of_both for name, of_both in counts.items() if sum(of_both)}
    _refuse_existing(out_dir, folders, force)
    first_index = {"train": 0, "live": first_live}
    recordings = {}
    with Bar("simulating", quiet=as_json) as bar:
        for name, of_both in folders.items():
            recordings[name] = simulate_batches(
                *of_both,
                seed=seed,
                first_index=first_index[name],
                n_streams=streams,
                progress=partial(bar.show, f"simulating {name}"),
            )
    for name, batches in recordings.items():
        write_recordings(batches, out_dir / name, overwrite=force)
    write_atomically(out_dir / _CONFIG, _config(tuple(folders), seed).encode())
    _emit(out_dir, recordings, as_json)


def _refuse_existing(out_dir: Path, folders: Iterable[str], force: bool) -> None:
    """Raise OutputError, before anything is simulated, if a file exists or cannot be written."""
    names = [_CONFIG, *(f"{folder}/{name}" for folder in folders for name in (RECORDINGS_NAME, LABELS_NAME))]
    existing = [out_dir / name for name in names if os.path.lexists(out_dir / name)]
    if existing and not force:
        raise OutputError(f"{existing[0]} exists: name another folder with --out, or overwrite it with --force")
    for name in names:
        with writing(out_dir / name):
            _check_writable(out_dir / name)


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    folder = next(parent for parent in path.absolute().parents if os.path.lexists(parent))
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{folder} is a file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _config(folders: tuple[str, ...], seed: int) -> str:
    live = f"{folders[-1]}/{RECORDINGS_NAME}"
    learn_from = Entry("recordings", f"train/{RECORDINGS_NAME}", "normal batches, for streamad train")
    if "train" not in folders:
        learn_from = Entry("recordings", "train/recordings.jsonl", "normal batches; default: the source", active=False)
    sections = (
        Section(
            "source",
            ("Where samples come from: a file, a folder or a pattern; paths are relative to this file's folder.",),
            (Entry("url", live),),
        ),
        Section(
            "decode",
            ("How messages are read. These are in streamad's own format: nothing to map (docs/guide/messages.md).",),
            (Entry("format", "json", "auto, json or msgpack"),),
        ),
        Section(
            "sequences",
            ("When a sequence (here: a batch) ends.",),
            (
                Entry("end", ("marker", "change"), "end: true in a message, or the stream's next batch"),
                Entry("max_duration", "48h", "hard limit; a batch takes about 18 h"),
                Entry("allowed_lateness", "0s", "samples may come out of order by this much"),
            ),
        ),
        Section(
            "window",
            ("How a batch becomes a fixed-length window: one sample in 10 minutes, about 108 in a batch.",),
            (
                Entry("length", _WINDOW, "shorter batches are padded"),
                Entry("longer", "resample", "longer ones are squeezed; or: truncate, reject"),
                Entry("max_missing", 0.2, "more of a channel missing: unscorable"),
            ),
        ),
        *judging_sections(learn_from, early=True),
    )
    head = (
        f"A simulated plant of fed-batch fermenters (streamad simulate, seed {seed}).",
        "In this folder: streamad train, then streamad run. Every key: docs/guide/config.md.",
    )
    return render(head, "fermenters", [ChannelLine(name, unit) for name, unit in CHANNELS], sections)


def _emit(out_dir: Path, recordings: dict[str, list[Recording]], as_json: bool) -> None:
    if as_json:
        written = {
            name: {
                "recordings": str(out_dir / name / RECORDINGS_NAME),
                "labels": str(out_dir / name / LABELS_NAME),
                "normal": sum(not batch.fault for batch in batches),
                "faulty": sum(bool(batch.fault) for batch in batches),
                "samples": sum(len(batch.times_us) for batch in batches),
            }
            for name, batches in recordings.items()
        }
        print_json({"config": str(out_dir / _CONFIG), **written})
        return
    for name, batches in recordings.items():
        n_faulty = sum(bool(batch.fault) for batch in batches)
        what = f"{len(batches)} batches" + (f", {n_faulty} of them faulty" if n_faulty else ", all normal")
        out.print(f"wrote {out_dir / name / RECORDINGS_NAME}: {what} (the truth: {LABELS_NAME} beside it)")
    out.print(f"wrote {out_dir / _CONFIG}")
    if (out_dir / "checkpoint").exists():
        err.print(note("checkpoint/ and out/ are from an earlier run; delete both to monitor these recordings"))
    if "live" not in recordings:
        return  # training batches alone
    is_here = out_dir.resolve() == Path.cwd()
    steps = [
        *([] if is_here else [f"cd {shlex.quote(str(out_dir))}"]),
        *(["streamad train"] if "train" in recordings else []),
        "streamad run",
    ]
    out.print("next: " + "\n      ".join(steps))
    out.print("or, to compare with the truth instead: streamad replay --labels live/labels.csv")
