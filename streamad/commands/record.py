"""``streamad record``: copies a topic's records into files, to replay them later."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from streamad.commands.shared.console import (
    Bar,
    ConfigOption,
    JsonOption,
    err,
    note,
    notice,
    out,
    print_json,
    run_async,
    stop_on_signals,
)
from streamad.commands.shared.options import SinceOption, UntilOption, input_url, local_path, open_input, span_now
from streamad.commands.shared.plants import check_out, load_whole_plant
from streamad.errors import UsageError
from streamad.plant import Plant
from streamad.plugins import connect_feed
from streamad.ports import Feed
from streamad.runtime.recordings import Recorder
from streamad.types import SourceNotice, from_us

_ENDING = ".records.jsonl"


def record(
    *,
    out_dir: Annotated[
        Path, typer.Option("--out", callback=local_path, help="New folder for the recordings.", metavar="DIR")
    ],
    config: ConfigOption = Path("plant.yaml"),
    from_url: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="The topic, such as kafka://HOST:PORT/TOPIC. Default: the config's source.",
        ),
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new records, until Ctrl-C or --until.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy a topic into files, one for each partition: offset, time, key and value of every record.

    `streamad replay DIR` then gives the same verdicts as on the topic. Reads without a group and commits nothing.

    Example: streamad record --since 2h --out incident
    """
    plant = load_whole_plant(config)
    span = span_now(plant, since, until)
    url = input_url(None, from_url)
    _refuse_existing(out_dir)
    check_out(plant, out_dir / f"partition{_ENDING}", is_recording=True)

    async def work() -> None:
        with Bar("recording", quiet=as_json, is_endless=follow) as bar:
            recorder = Recorder(
                lambda: open_input(plant, url, span),
                lambda partition, from_start: _feed(plant, out_dir, partition, from_start),
                plant.clock,
                on_progress=lambda recorder: _show(bar, recorder),
                on_notice=_emit,
            )
            with stop_on_signals(recorder.request_stop, "finishing the files"):
                await recorder.run(follow=follow, until_us=span.until_us)
        result = _result(recorder, out_dir, bar.elapsed_s, follow)
        if as_json:
            print_json(result)
        else:
            _print_result(result)
        if result["interrupted"]:
            raise typer.Exit(130)

    run_async(work())


def _refuse_existing(folder: Path) -> None:
    existing = sorted(path.name for path in folder.glob(f"*{_ENDING}*")) if folder.is_dir() else []
    if existing:
        raise UsageError(f"{folder} already holds {existing[0]}: name another folder with --out")


def _feed(plant: Plant, folder: Path, partition: str, from_start: bool) -> Feed:
    name = quote(partition, safe="")
    name = f"%2E{name[1:]}" if name.startswith(".") else name  # sources skip hidden files
    options = {"partition": partition, "from_start": from_start}
    return connect_feed(f"file:{folder.absolute() / name}{_ENDING}", options, plant.context, "--out")


def _show(bar: Bar, recorder: Recorder) -> None:
    bar.show(f"recording: {recorder.records} records, {bar.rate(recorder.records):.0f}/s", recorder.share.value)


def _emit(told: SourceNotice) -> None:
    err.print(notice(told.kind, f" {told.message}"))


def _result(recorder: Recorder, folder: Path, wall_s: float, follow: bool) -> dict[str, Any]:
    partitions = recorder.partitions
    firsts = [each.first_us for each in partitions.values() if each.first_us is not None]
    lasts = [each.last_us for each in partitions.values() if each.last_us is not None]
    return {
        "folder": str(folder),
        "records": recorder.records,
        "value_bytes": sum(each.value_bytes for each in partitions.values()),
        "first_time": from_us(min(firsts)) if firsts else None,
        "last_time": from_us(max(lasts)) if lasts else None,
        "partitions": {
            name: {
                "records": each.records,
                "begin_offset": each.begin_offset,
                "next_offset": each.next_offset,
                "from_start": each.seen_from_start,
            }
            for name, each in sorted(partitions.items())
        },
        "interrupted": recorder.was_stopped and not follow,  # --follow always ends by a stop
        "wall_s": round(wall_s, 3),
        "records_per_s": round(recorder.records / wall_s, 1) if wall_s else None,
    }


def _print_result(result: dict[str, Any]) -> None:
    count = len(result["partitions"])
    first, last = result["first_time"], result["last_time"]
    out.print(
        ("interrupted; " if result["interrupted"] else "")
        + f"recorded {result['records']} records ({result['value_bytes'] / 1e6:.1f} MB) of {count} "
        f"partition{'' if count == 1 else 's'} in {result['folder']}"
        + ("" if first is None else f", {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC")
        + f", {result['wall_s']:.1f} s"
        + (f", {result['records_per_s']:.0f} records/s" if result["records_per_s"] else "")
    )
    if not result["records"]:
        out.print(note("no record in this range"))
