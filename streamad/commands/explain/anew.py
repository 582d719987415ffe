"""Judges a sequence of a recording anew: verdict, alert and reasons that a version of the model gives."""

from __future__ import annotations

import math
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from streamad.commands.shared.console import Bar, local_url
from streamad.commands.shared.options import open_input
from streamad.errors import SourceError, StreamadError, UsageError
from streamad.ingest.table.reading import read_table
from streamad.ingest.windowing import Unscorable, judged_window
from streamad.judge.bank import Router
from streamad.judge.calibration import score_of
from streamad.judge.explainer import attribution_by
from streamad.judge.scoring import ModelInService
from streamad.judge.verdicts import alert_id, make_alert, scored, unscorable
from streamad.learn.parts import versions_of
from streamad.messages import Alert, Attribution, ModelRef, Verdict
from streamad.plant import Plant
from streamad.plugins import failure_of
from streamad.runtime.recordings import read_sequences
from streamad.safe_text import one_line
from streamad.schemas.fetching import fetching
from streamad.telemetry.metrics import Counters
from streamad.types import FinishedSequence, FloatArray, Window

_SHOWN_IDS = 5
_SAME_SCORE = 1e-3  # relative: other machines round otherwise


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A sequence of a recording, its id, and its window or why it has none."""

    id: str
    sequence: FinishedSequence
    window: Window | Unscorable


async def find_recorded(plant: Plant, recording: str, beginning: str, name: tuple[str, str] | None = None) -> Recorded:
    """Return the only sequence of ``recording`` whose id begins so; ``name``: its stream and sequence, if known.

    It is cut as ``run`` and ``replay`` do. Raises UsageError for several, SourceError for none.
    """
    settings, counters = plant.settings, Counters()
    source = open_input(plant, local_url(recording))
    found: dict[str, FinishedSequence] = {}
    n_sequences, namesake = 0, None
    with Bar("reading") as bar:

        def show(read: Counters, share: float | None) -> None:
            bar.show(f"reading: {sum(read.sequences.values())} sequences", share or 0.0, None if share is None else 1.0)

        try:
            table = read_table(settings, plant.base_dir)
            async with fetching(plant) as fetcher:
                sequences = cast(
                    "Any",
                    read_sequences(settings, source, plant.clock, counters, show, table=table, fetcher=fetcher),
                )
                async with aclosing(sequences):
                    async for sequence in sequences:
                        n_sequences += 1
                        first_us = sequence.start_us
                        its_id = alert_id(sequence.stream, sequence.sequence, sequence.first_position, first_us)
                        if its_id.startswith(beginning):
                            found[its_id] = sequence
                        elif name == (sequence.stream, sequence.sequence):
                            namesake = its_id
        finally:
            await source.close()
    if len(found) > 1:
        ids = ", ".join(list(found)[:_SHOWN_IDS])
        raise UsageError(f"{len(found)} sequences of {recording} have an id that begins with {beginning}: {ids}")
    if not found:
        raise SourceError(_why_not_found(recording, beginning, n_sequences, name, namesake))
    ((its_id, sequence),) = found.items()
    return Recorded(its_id, sequence, judged_window(sequence, settings, settings.channel_specs))


def _why_not_found(
    recording: str, beginning: str, n_sequences: int, name: tuple[str, str] | None, namesake: str | None
) -> str:
    if not n_sequences:
        return (
            f"no sequence was read from {recording}: is the path or URL right? streamad check says what is unreadable"
        )
    if name is not None and namesake is not None:
        return (
            f"{recording} holds {name[1]!r} of {name[0]!r}, but with the id {namesake}, as it lies at another place or "
            "begins at another time: name the recording, or the topic, that the monitor read"
        )
    of = f"{n_sequences} sequences" if n_sequences != 1 else "the one sequence"
    return f"none of {of} of {recording} has an id that begins with {beginning}: name the recording that holds it"


@dataclass(frozen=True, slots=True, eq=False)
class Anew:
    """What a version says of a sequence; ``missing`` says why it has no reasons, or what differs from the alert."""

    verdict: Verdict
    alert: Alert | None = None
    attribution: Attribution | None = None
    missing: str | None = None


def judge_anew(plant: Plant, recorded: Recorded, version: str | None) -> Anew:
    """Return what ``version`` (None: the one in service) of its model says of a sequence. Raises StreamadError."""
    now_us, settings = plant.clock.now_us(), plant.settings
    if isinstance(recorded.window, Unscorable):
        return Anew(unscorable(recorded.sequence, recorded.window, now_us))
    name = Router.of(settings).name_for(recorded.sequence.routes)
    if isinstance(name, Unscorable):
        return Anew(unscorable(recorded.sequence, name, now_us))
    model = versions_of(plant, name).load(version)
    terms = _terms(model, recorded.window)
    verdict = scored(
        recorded.sequence,
        recorded.window,
        terms,
        calibration=model.calibration,
        settings=settings.alerts,
        model=model.ref,
        now_us=now_us,
    )
    alert = make_alert(verdict, settings.alerts)
    if alert is None:
        return Anew(verdict)
    return Anew(verdict, alert, *_reasons(plant, model, alert, terms, recorded.window))


def explain_anew(plant: Plant, alert: Alert, window: Window) -> tuple[Attribution | None, str | None]:
    """Return why ``alert`` was raised, made from its window by the version that raised it, or why it cannot be made.

    The second text also says if the version gives the window another score than the alert has.
    """
    try:
        model = versions_of(plant, alert.model.name).load(alert.model.version)
        terms = _terms(model, window)
    except StreamadError as error:
        return None, f"no reasons can be made: {one_line(str(error))}"
    attribution, why = _reasons(plant, model, alert, terms, window)
    score = score_of(terms)
    if why is None and not math.isclose(score, alert.score, rel_tol=_SAME_SCORE, abs_tol=1e-6):
        why = f"the score of this window is {score:.4g}, that of the alert {alert.score:.4g}: it is not what was judged"
    return attribution, why


def _terms(model: ModelInService, window: Window) -> FloatArray:
    terms: FloatArray = model.scorer.score(window.values[None], np.array([window.length], dtype=np.int64))[0]
    return terms


def _reasons(
    plant: Plant, model: ModelInService, alert: Alert, terms: FloatArray, window: Window
) -> tuple[Attribution | None, str | None]:
    try:
        return attribution_by(model, alert, terms, window, plant.settings), None
    except KeyboardInterrupt:
        raise
    except StreamadError as error:
        return None, f"no reasons can be made: {one_line(str(error))}"
    except BaseException as error:  # noqa: BLE001 - the model is foreign code and may fail in any way
        return None, f"no reasons can be made: {_label(alert.model)} failed while explaining: {failure_of(error)}"


def _label(model: ModelRef) -> str:
    return f"model {model.name} {model.version}"
