"""``streamad run``: monitor the source of the config."""

from __future__ import annotations

__all__ = ["run"]

from pathlib import Path
from typing import Annotated

import typer

from streamad.commands._common import ConfigOption, JsonOption, load_whole_plant, print_json, run_async
from streamad.commands._monitor import Monitor
from streamad.commands._summary import print_summary
from streamad.wiring import committer_for, source_for


def run(
    config: ConfigOption = Path("plant.yaml"),
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print alerts as they come.")] = False,
) -> None:
    """Monitor: read the source, judge every finished sequence, write alerts to the sinks.

    Goes on where the last run stopped: the checkpoint makes every verdict come out exactly once, also after a crash.
    Ctrl-C stops after what is being scored is committed.
    """
    plant = load_whole_plant(config)
    settings = plant.settings

    async def work() -> None:
        source = source_for(settings, plant.context)
        report = await Monitor(plant, quiet=quiet).run(
            source,
            committer_for(settings, plant.context, source),
            explain=settings.sinks.attributions is not None or not quiet,
            with_verdicts=settings.sinks.verdicts is not None,
        )
        if as_json:
            print_json(report.as_dict())
        else:
            print_summary(report, settings.alerts.false_alarm_rate)

    run_async(work())
