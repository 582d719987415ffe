"""``streamad score``: a score and a p-value for every sequence of recordings."""

from __future__ import annotations

__all__ = ["score"]

from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer
from rich.table import Table

from streamad.commands._common import ConfigOption, load_whole_plant, out, run_async
from streamad.commands._input import FromOption, SinceOption, UntilOption, input_url, open_input, span_now
from streamad.commands._monitor import p_text
from streamad.commands._windows import Recordings, read_windows
from streamad.ingest.windowing import Unscorable
from streamad.judge.alerts import scored, unscorable
from streamad.judge.scoring import ModelInService
from streamad.settings import Settings
from streamad.types import Verdict
from streamad.wiring import model_in_service

_BATCH = 256


def score(
    recordings: Annotated[
        str | None, typer.Argument(help="Recordings: path or URL. Default: the config's source.")
    ] = None,
    *,
    config: ConfigOption = Path("plant.yaml"),
    from_url: FromOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    version: Annotated[str | None, typer.Option(help="Model version, if not the one in service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one verdict per line as JSON.")] = False,
) -> None:
    """Score recordings and print every verdict; nothing is written, no alert is raised."""
    plant = load_whole_plant(config)
    model = model_in_service(plant.settings, plant.base_dir, version)
    source = open_input(plant, input_url(recordings, from_url), span_now(plant, since, until))
    data = run_async(read_windows(plant, source))
    verdicts = _verdicts(data, model, plant.settings, plant.clock.now_us())
    if as_json:
        for verdict in verdicts:
            typer.echo(msgspec.json.encode(verdict).decode())
        return
    table = Table("stream", "sequence", "samples", "score", "p", "decision", box=None)
    for verdict in verdicts:
        table.add_row(
            verdict.stream,
            verdict.sequence,
            str(verdict.n_samples),
            "" if verdict.score is None else f"{verdict.score:.4f}",
            "" if verdict.p_value is None else p_text(verdict.p_value),
            verdict.decision + (f": {verdict.detail}" if verdict.detail else ""),
        )
    out.print(table)


def _verdicts(data: Recordings, model: ModelInService, settings: Settings, now_us: int) -> list[Verdict]:
    verdicts = []
    for start in range(0, len(data.windows), _BATCH):
        windows = data.windows[start : start + _BATCH]
        terms = model.scorer.score(
            np.stack([window.values for window in windows]),
            np.array([window.length for window in windows], dtype=np.int64),
        )
        verdicts += [
            scored(
                sequence,
                row,
                calibration=model.calibration,
                settings=settings.alerts,
                model=model.ref,
                now_us=now_us,
            )
            for sequence, row in zip(data.sequences[start : start + _BATCH], terms, strict=True)
        ]
    verdicts += [unscorable(sequence, Unscorable(why), now_us, model.ref) for sequence, why in data.unscorable]
    return sorted(verdicts, key=lambda verdict: verdict.start_time)
