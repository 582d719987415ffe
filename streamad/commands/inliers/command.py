"""``streamad inliers``: lists, exports, vetoes and deletes the sequences stored for learning."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer

from streamad.commands.inliers.export import Route, jsonl_bytes, npz_bytes
from streamad.commands.inliers.listing import StoreReport, counted
from streamad.commands.shared.console import ConfigOption, JsonOption, err, out, print_json, run_async
from streamad.commands.shared.marked import print_marked
from streamad.commands.shared.options import (
    ByOption,
    ModelOption,
    NoteOption,
    SequenceOption,
    StreamOption,
    check_names,
    local_path,
)
from streamad.commands.shared.plants import check_out, load_plant
from streamad.decisions.recording import current_user
from streamad.errors import UsageError
from streamad.learn.parts import store_path
from streamad.learn.store.records import Mark
from streamad.messages import SHARES, Request, Share
from streamad.outputs.marks.writing import MarkWriter
from streamad.outputs.stored import (
    StoreView,
    learning_of,
    open_store,
    some_models,
    stored_models,
    stored_sequences,
    time_text,
)
from streamad.plant import Plant
from streamad.ranges import Span, parse_time_us, span_of
from streamad.system.files import write_atomically, writing
from streamad.types import from_us

inliers = typer.Typer(help="List, export, veto and delete the sequences stored for learning.", no_args_is_help=True)

ShareOption = Annotated[
    str | None, typer.Option("--share", metavar="SHARE", help=f"Only this share: {', '.join(SHARES)}.")
]
SinceOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Ended at this time or later: 2026-11-01T08:00:00Z, 2026-11-01, 7d (ago)."),
]
UntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="Ended before this time.")]


@inliers.command("list")
def list_stored(
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    each: Annotated[bool, typer.Option("--each", help="Print every sequence with its id, not only counts.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the stored sequences by share: counts, time span, model versions that judged them, marks, problems.

    accepted: may be trained on. reserve: calibrates and compares models, is never trained on. aside: not accepted; kept
    for feedback and for `models relearn`. --each prints the ids for `inliers veto` and `feedback --alert`.

    Example: streamad inliers list --each
    """
    plant = load_plant(config)
    learning_of(plant)
    reports = [StoreReport(plant, name) for name in stored_models(plant, model)]
    if as_json:
        print_json({"models": [report.as_dict(each=each) for report in reports]})
        return
    if not reports:
        out.print(f"nothing is stored yet in {store_path(plant)}: the learner stores what streamad run judges")
    for report in reports:
        report.print(each=each)


@inliers.command("export")
def export(
    *,
    to: Annotated[
        Path, typer.Option("--out", callback=local_path, metavar="FILE", help="New recording: FILE.npz or FILE.jsonl.")
    ],
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    share: ShareOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write stored sequences into a recording that train, score and replay read into the same windows.

    An NPZ file can be read whatever the section decode is. Its classes are marks or decisions (normal, anomalous,
    learning, false_alarm, confirmed, veto): `FILE.npz?classes=normal,false_alarm` selects by them. JSON lines keep
    streams and times, in streamad's own format.

    Example: streamad inliers export --share accepted --since 7d --out week.npz
    """
    plant = load_plant(config)
    learning_of(plant)
    span = span_of(since, until, plant.clock.now_us())
    _check_target(to, plant, force=force)
    models = stored_models(plant, model)
    chosen = [
        one
        for one in stored_sequences(plant, models)
        if _share_of(share) in (None, one.share) and _is_within(one.sequence.time_us, span)
    ]
    if not chosen:
        raise UsageError("no stored sequence has that model, share and time: see streamad inliers list")
    content = _content(plant, chosen, to.suffix.lower())
    with writing(to):
        to.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(to, content)
    counts = Counter[str](one.share for one in chosen)
    if as_json:
        print_json({"file": str(to), "sequences": len(chosen), "shares": counts})
        return
    first, last = (pick(one.sequence.time_us for one in chosen) for pick in (min, max))
    span_text = f"{time_text(first)} to {time_text(last)} UTC"
    out.print(f"wrote {to}: {len(chosen)} sequences ({counted(counts)}), ended {span_text}")
    period = plant.settings.window.resample.period if plant.settings.window.resample is not None else None
    if to.suffix.lower() == ".npz" and period is not None:
        out.print(f"its times are generated: read it as '{to}?period={period / 1e6:g}s', the grid of window.resample")


def _share_of(name: str | None) -> Share | None:
    if name is None:
        return None
    share = next((share for share in SHARES if share == name), None)
    if share is None:
        raise UsageError(f"--share {name}: there is no such share (known: {', '.join(SHARES)})")
    return share


def _is_within(time_us: int, span: Span) -> bool:
    return (span.since_us is None or time_us >= span.since_us) and (span.until_us is None or time_us < span.until_us)


def _check_target(to: Path, plant: Plant, *, force: bool) -> None:
    if to.suffix.lower() not in (".npz", ".jsonl"):
        raise UsageError(f"--out {to}: the name must end with .npz or .jsonl")
    if to.exists() and not force:
        raise UsageError(f"{to} exists: name another file with --out, or overwrite it with --force")
    check_out(plant, to, is_recording=True)
    decode = plant.settings.decode
    if to.suffix.lower() == ".jsonl" and (decode.fields or decode.counts_from_start or decode.format == "msgpack"):
        raise UsageError(
            f"--out {to}: JSON lines would be in streamad's own format, and this plant reads another one (decode in "
            "the config): export to .npz, which does not depend on decode"
        )


def _content(plant: Plant, chosen: Sequence[StoreView], ending: str) -> bytes:
    settings = plant.settings
    if ending == ".npz":
        marks: dict[str, Mark] = {}
        for name in {one.model for one in chosen}:
            marks |= open_store(plant, name).marks()
        return npz_bytes(chosen, settings.channel_specs, marks)
    routes = {}
    if settings.models is not None:
        prefix = f"{settings.model.name}."
        routes = {
            one.model: Route(settings.models.field, one.model.removeprefix(prefix))
            for one in chosen
            if one.model.startswith(prefix)
        }
    period_us = settings.window.resample.period if settings.window.resample is not None else None
    return jsonl_bytes(chosen, settings.channel_specs, period_us=period_us, routes=routes)


@inliers.command("veto")
def veto(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of alerts or verdicts.")] = None,
    *,
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    stream: StreamOption = None,
    sequence: SequenceOption = None,
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep sequences out of training. Calibration and comparison are the same as without the mark.

    The same as `streamad feedback --veto`: it counts once the learner has read it.

    Example: streamad inliers veto 5f0c2a... --note "sensor was being calibrated"
    """
    plant = load_plant(config)
    check_names(stream, sequence)
    if not ids and stream is None:
        raise UsageError("name the sequences: ids, or --stream and --sequence")
    learning_of(plant)
    writer = MarkWriter(plant, model, by=by)
    chosen = [*(ids or []), *([writer.id_of(stream, sequence)] if stream and sequence else [])]
    print_marked(writer.write([writer.message(one, "veto", note) for one in chosen]), as_json=as_json)


@inliers.command("purge")
def purge(
    *,
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Sequences that ended before this time, such as 90d (ago).")
    ] = None,
    share: ShareOption = None,
    ids: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="The id of a sequence; may be repeated.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All sequences.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the stored sequences that meet every given condition, after a confirmation.

    The learner does it; if none works, it works here until then. Their ids are remembered, so they are not stored
    again; marks stay.

    Example: streamad inliers purge --share aside --before 30d
    """
    plant = load_plant(config)
    learning_of(plant)
    conditions = (before, share, ids)
    if everything and any(conditions):
        raise UsageError("--all and conditions contradict each other: leave one out")
    if not everything and not any(conditions):
        raise UsageError("name the sequences: --before, --share or --id, or --all for everything")
    before_us = None if before is None else parse_time_us(before, plant.clock.now_us(), "--before")
    wanted = _share_of(share)
    models = stored_models(plant, model)
    n, times_us = 0, []
    for one in stored_sequences(plant, models):
        times_us.append(one.sequence.time_us)
        is_before = before_us is None or one.sequence.time_us < before_us
        n += is_before and wanted in (None, one.share) and (not ids or one.sequence.id in ids)
    is_here = store_path(plant).exists()
    if (n or not is_here) and not yes:
        _confirm(f"{n} stored sequences of {', '.join(models)}" if is_here else "the stored sequences")
    is_done = bool(is_here and not n)
    if not is_done:
        asked = Request(
            request_id=uuid4().hex,
            action="purge",
            model=None if model is None else some_models(plant, model)[0],
            before=None if before_us is None else from_us(before_us),
            share=wanted,
            ids=ids or None,
            everything=everything,
            by=current_user(),
            created_at=from_us(plant.clock.now_us()),
        )
        deleted = run_async(_answered(plant, asked))
        is_done = deleted is not None
        n = n if deleted is None else deleted
    if as_json:
        print_json({"sequences": n, "deleted": is_done})
    elif is_done:
        out.print(f"deleted {n} sequences" + ("" if n else f": {_why_none(times_us)}"))
    else:
        out.print("asked: the learner deletes them once it reads this, see its event inliers_purged")


def _why_none(times_us: Sequence[int]) -> str:
    """Return why no sequence was deleted, if the stored ones ended at ``times_us``."""
    if not times_us:
        return "nothing was stored; what the learner has not stored yet is not deleted"
    latest = time_text(max(times_us))
    return (
        f"none of {len(times_us)} stored ones meets the conditions, the latest of them ended {latest} UTC; what the "
        "learner has not stored yet is not deleted"
    )


async def _answered(plant: Plant, asked: Request) -> int | None:
    from streamad.commands.shared.learner import purged_here  # noqa: PLC0415 - help needs none

    return await purged_here(plant, asked)


def _confirm(what: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"{what} would be deleted: without a terminal that needs --yes")
    if not typer.confirm(f"delete {what}?", err=True):
        err.print("nothing was deleted")
        raise typer.Exit(1)
