"""``streamad models retrain`` and ``relearn``: training from the inlier store, here or by a running monitor."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from streamad.commands.shared.console import (
    ConfigOption,
    JsonOption,
    err,
    note,
    out,
    print_json,
    run_async,
    stop_on_signals,
)
from streamad.commands.shared.options import ModelOption
from streamad.commands.shared.plants import load_whole_plant
from streamad.commands.shared.progress_bar import Bar
from streamad.errors import RegistryError, StreamadError
from streamad.learn.parts import registry_of
from streamad.learn.trainer.child import Child
from streamad.learn.trainer.requests import (
    TrainingFailed,
    TrainingOutcome,
    TrainingRequest,
    TrainingResult,
    post_request,
)
from streamad.learn.trainer.status import TrainingStatus, read_status
from streamad.outputs.stored import learning_of, one_model
from streamad.outputs.versions.service import loads_text
from streamad.outputs.versions.training import progress_text, relearn_request
from streamad.plant import Plant
from streamad.system.tasks import wait_for_either
from streamad.types import from_us

_POLL_S = 0.2
_INTERRUPTED_CODE = 130
_GOES_ON_US = 3_600_000_000

RequestOption = Annotated[bool, typer.Option("--request", help="Ask a running monitor to train, and return at once.")]


def retrain(
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    request: RequestOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a version on the stored sequences, compare it with the one in service, and promote the better one.

    If operators called alerts false alarms, a second version uses their marks and waits for a person. The same training
    as by schedule, at the lowest priority. After Ctrl-C the same command resumes within an hour.

    Example: streamad models retrain
    """
    plant = load_whole_plant(config)
    learning_of(plant)
    asked = TrainingRequest(reason="command", requested_us=plant.clock.now_us(), detail="streamad models retrain")
    _train(plant, one_model(plant, model), asked, hand_over=request, as_json=as_json)


def relearn(
    since: Annotated[
        str,
        typer.Option(metavar="TIME", help="When the plant changed: 2026-11-01T08:00:00Z, 2026-11-01, 2h or 3d (ago)."),
    ],
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    request: RequestOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train after a lasting change of the plant: on all sequences stored since then, whatever their decision.

    For a plant whose normal sequences alert since the change. Confirmed anomalies are left out. After Ctrl-C the same
    command with the same time resumes within an hour.

    Example: streamad models relearn --since 2026-11-01T08:00:00Z
    """
    plant = load_whole_plant(config)
    learning_of(plant)
    asked = relearn_request(plant, since)
    _train(plant, one_model(plant, model), asked, hand_over=request, as_json=as_json)


def _train(plant: Plant, model: str, asked: TrainingRequest, *, hand_over: bool, as_json: bool) -> None:
    if hand_over:
        post_request(registry_of(plant), model, asked)
        if as_json:
            print_json({"model": model, "requested": asked})
        else:
            out.print("requested: a running monitor trains; see streamad models status")
        return
    result = run_async(_trained(plant, model, asked, quiet=as_json))
    if as_json:
        print_json(result)
    if isinstance(result, TrainingFailed):
        if result.kind == "interrupted":
            err.print(how_to_resume(result.request))
            raise typer.Exit(_INTERRUPTED_CODE)
        raise _TrainingError(result.error)
    if result.promoted and result.version is not None:
        if not as_json:
            out.print(f"model {model} {result.version}: {result.reason}; {loads_text(plant)}")
    elif result.version is None:
        raise _TrainingError(f"model {model}: {result.reason}")
    elif not as_json:
        out.print(f"model {model} {result.version}: {result.reason}")
        out.print(f"to promote it anyway: streamad models promote {result.version}")
    if not as_json:
        _end_with_marks(plant, result)


def _end_with_marks(plant: Plant, result: TrainingOutcome) -> None:
    """Print what operators' marks have done in the training."""
    if result.n_capped:
        err.print(note(result.capped))
    second = result.second
    if second is None:
        return
    loads = f"; {loads_text(plant)}" if second.promoted else ""
    first, *more = f"{second.reason}{loads}".split("; ")
    out.print(f"model {result.model} {second.version or '(no version)'}, with operators' marks: {first}")
    for part in more:
        out.print(f"  {part}")


class _TrainingError(StreamadError):
    """Raised when the training gave no version; its text is that of the trainer."""


async def _trained(plant: Plant, model: str, asked: TrainingRequest, *, quiet: bool) -> TrainingResult:
    """Train in a process of its own and show its progress; the first Ctrl-C interrupts it."""
    results: list[TrainingResult] = []
    registry = registry_of(plant)
    child = Child(plant, model, results.append)
    child.start(same_as_before(read_status(registry, model), asked))
    stop = asyncio.Event()
    with (
        stop_on_signals(stop.set, "the training saves how far it is"),
        Bar(f"model {model}: beginning", quiet=quiet) as bar,
    ):
        while child.is_running and not stop.is_set():
            await wait_for_either(stop, timeout_s=_POLL_S)
            try:
                show_status(bar, model, await asyncio.to_thread(read_status, registry, model))
            except RegistryError:  # the next read may succeed, and the result has the error
                continue
        await child.close()
    if not results:  # stopped before its process began
        return TrainingFailed(model=model, error="the training was interrupted", request=asked, kind="interrupted")
    return results[0]


def how_to_resume(asked: TrainingRequest) -> str:
    """Return the command that continues an interrupted training; ``--since`` as a time, since a duration moves."""
    text = "interrupted: the same command resumes from here within an hour"
    if asked.since_us is None:
        return text
    return f"{text}, with --since {from_us(asked.since_us).isoformat().replace('+00:00', 'Z')}"


def same_as_before(status: TrainingStatus, asked: TrainingRequest) -> TrainingRequest:
    """Return the request of a training interrupted less than an hour ago, if it asked for the same: it continues.

    After an hour ``asked`` is a new training, which includes the sequences stored since.
    """
    before = status.request
    if status.state != "interrupted" or before is None:
        return asked
    if asked.requested_us - (status.updated_us or 0) >= _GOES_ON_US:
        return asked
    return before if (before.reason, before.since_us) == (asked.reason, asked.since_us) else asked


def show_status(bar: Bar, model: str, status: TrainingStatus) -> None:
    """Show phase, epoch and loss of a running training on ``bar``, each new phase as a line."""
    if status.state != "running":
        return
    # The comparison comes after the last fit and takes seconds: it has a bar of its own.
    before, n_fits = (0, 1) if status.phase == "comparison" else (max(0, status.fit - 1), status.n_fits)
    text = f"model {model}: {progress_text(status)}"
    done = before * status.n_epochs + status.epoch
    bar.show(text, done, n_fits * status.n_epochs or None, line=text.partition(",")[0])
