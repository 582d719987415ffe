"""``streamad score``: prints score, p-value and decision of every sequence of recordings."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from streamad.commands.shared.console import (
    ConfigOption,
    count,
    err,
    judge_on_one_thread,
    notice,
    out,
    print_json,
    print_table,
    run_async,
)
from streamad.commands.shared.figures.losses import check_usable, lost, unscorable_text
from streamad.commands.shared.figures.report import KNOWN_SEQUENCES
from streamad.commands.shared.options import FromOption, SinceOption, UntilOption, input_url, open_input, span_now
from streamad.commands.shared.plants import load_whole_plant
from streamad.commands.shared.windows import Recordings, read_windows
from streamad.errors import ArtifactError, RegistryError, StreamadError, UsageError
from streamad.ingest.windowing import Unscorable
from streamad.judge.scoring import ModelInService
from streamad.judge.verdicts import p_text, unscorable
from streamad.learn.parts import versions_of
from streamad.messages import ModelRef, Verdict
from streamad.plant import Plant
from streamad.safe_text import visible_name
from streamad.settings.plant_yaml import Settings


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
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the counts of decisions instead of a line for each sequence.")
    ] = False,
) -> None:
    """Print score, p-value and decision of every sequence; nothing is written.

    With several models (models in the config) each sequence is scored by its own model.

    Example: streamad score batch-17.csv
    """
    if as_json and quiet:
        raise UsageError("--json prints each verdict and --quiet none: leave one out")
    judge_on_one_thread()
    plant = load_whole_plant(config)
    settings = plant.settings
    if version is not None and settings.models is not None:
        raise UsageError("--version names a version of one model, and this config has several models: leave it out")
    models = _Models(plant, version)
    if settings.models is None:
        models.get(settings.model.name)
    given = input_url(recordings, from_url)
    source = open_input(plant, given, span_now(plant, since, until))
    data = run_async(read_windows(plant, source, recordings or from_url or settings.source.url))
    counters = data.counters.as_dict()
    check_usable(counters, given=given, may_be_empty=since is not None or until is not None)
    for loss in lost(counters):
        err.print(notice(loss.what, f": {loss.text}"))
    verdicts = _verdicts(data, models, settings, plant.clock.now_us())
    judged_by = [(models.get(each.model.name), each) for each in verdicts if each.model and each.score is not None]
    if n_known := sum(model.knows(verdict) for model, verdict in judged_by):
        err.print("warning: " + KNOWN_SEQUENCES.format(n_known, len(verdicts)))
    if as_json:
        for verdict in verdicts:
            print_json(verdict)
        return
    if reasons := unscorable_text(Counter(Unscorable(each.why).reason for each in data.unscorable)):
        err.print(notice("unscorable", f": {reasons}"))
    if quiet:
        counts = Counter(verdict.decision for verdict in verdicts)
        each = ", ".join(f"{n} {decision}" for decision, n in sorted(counts.items()))
        out.print(count(len(verdicts), "sequence") + (f" ({each})" if each else ""))
        return
    table = Table("stream", "sequence", "samples", "score", "p", "decision", box=None)
    for verdict in verdicts:
        table.add_row(
            visible_name(verdict.stream),
            visible_name(verdict.sequence),
            str(verdict.n_samples),
            "" if verdict.score is None else f"{verdict.score:.4f}",
            "" if verdict.p_value is None else p_text(verdict.p_value),
            verdict.decision + (f": {verdict.detail}" if verdict.detail else ""),
        )
    print_table(table, whole=("stream", "sequence", "score", "p"))


class _Models:
    """The models in service, each loaded once."""

    def __init__(self, plant: Plant, version: str | None) -> None:
        self._plant = plant
        self._version = version
        self._found: dict[str, ModelInService | StreamadError] = {}

    def get(self, name: str) -> ModelInService:
        """Return the model ``name``. Raises StreamadError if it cannot be used."""
        if name not in self._found:
            try:
                model = versions_of(self._plant, name).load(self._version)
                for line in model.refused:
                    err.print(notice("backend refused", f": {line}"))
                self._found[name] = model
            except StreamadError as error:
                self._found[name] = error
        found = self._found[name]
        if isinstance(found, StreamadError):
            raise found
        return found

    def ref_of(self, name: str | None) -> ModelRef | None:
        """Return the version of the model ``name``, None if there is none or it is unusable."""
        try:
            return None if name is None else self.get(name).ref
        except StreamadError:
            return None


def _verdicts(data: Recordings, models: _Models, settings: Settings, now_us: int) -> list[Verdict]:
    verdicts = []
    errors = []
    for name, indexes in data.indexes().items():
        try:
            verdicts += data.judged(indexes, models.get(name), settings.alerts, now_us)
        except (ArtifactError, RegistryError) as error:
            errors.append(error)
            verdicts += [unscorable(data.sequences[index], Unscorable(str(error)), now_us) for index in indexes]
    if errors and len(errors) == len(data.indexes()):
        raise errors[0]
    verdicts += [
        unscorable(each.sequence, Unscorable(each.why), now_us, models.ref_of(each.model)) for each in data.unscorable
    ]
    return sorted(verdicts, key=lambda verdict: verdict.start_time)
