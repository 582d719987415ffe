"""``streamad models retrain`` and ``relearn``: ask the learner of the plant to train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from streamad.commands.shared.console import Bar, ConfigOption, JsonOption, err, note, out, print_json, run_async
from streamad.commands.shared.options import ModelOption
from streamad.commands.shared.plants import load_whole_plant
from streamad.decisions.recording import current_user
from streamad.errors import StreamadError
from streamad.learn.parts import registry_of
from streamad.learn.trainer.results import TrainingFailed, TrainingOutcome, TrainingResult
from streamad.learn.trainer.status import TrainingStatus, read_status
from streamad.messages import Request
from streamad.outputs.marks.place import send_feedback
from streamad.outputs.stored import learning_of, one_model
from streamad.outputs.versions.service import loads_text
from streamad.outputs.versions.training import progress_text, training_request
from streamad.plant import Plant
from streamad.types import to_us

_INTERRUPTED_CODE = 130

RequestOption = Annotated[bool, typer.Option("--request", help="Ask the learner to train, and return at once.")]


def retrain(
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    request: RequestOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a version on the stored sequences, compare it with the one in service, and promote the better one.

    If operators called alerts false alarms, a second version uses their marks and waits for a person. The learner does
    it, at the lowest priority; if none works, it works here until then. After Ctrl-C the training resumes as soon as a
    learner works again.

    Example: streamad models retrain
    """
    plant = load_whole_plant(config)
    learning_of(plant)
    name = one_model(plant, model)
    _train(plant, name, training_request(plant, name, by=current_user()), hand_over=request, as_json=as_json)


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

    For a plant whose normal sequences alert since the change. Confirmed anomalies are left out. After Ctrl-C the
    training resumes as soon as a learner works again.

    Example: streamad models relearn --since 2026-11-01T08:00:00Z
    """
    plant = load_whole_plant(config)
    learning_of(plant)
    name = one_model(plant, model)
    _train(plant, name, training_request(plant, name, since, by=current_user()), hand_over=request, as_json=as_json)


def _same_as_before(plant: Plant, model: str, asked: Request) -> Request:
    """Return ``asked`` under the id of a training that was interrupted and asked for the same, so that it continues."""
    status = read_status(registry_of(plant), model)
    before = status.request
    has_ended = status.last is not None and status.last.request == before
    if status.state != "interrupted" or before is None or not before.id or has_ended:
        return asked
    since_us = None if asked.since is None else to_us(asked.since)
    reason = "relearn" if asked.action == "relearn" else "command"
    is_same = (before.reason, before.since_us) == (reason, since_us)
    return msgspec.structs.replace(asked, request_id=before.id) if is_same else asked


def _train(plant: Plant, model: str, asked: Request, *, hand_over: bool, as_json: bool) -> None:
    asked = _same_as_before(plant, model, asked)
    if hand_over:
        run_async(send_feedback(plant, [asked]))
        if as_json:
            print_json({"model": model, "requested": asked})
        else:
            out.print("requested: the learner trains; see streamad models status")
        return
    result = run_async(_trained(plant, model, asked, quiet=as_json))
    if result is None:
        err.print("interrupted: the training resumes once a learner works (streamad run, or streamad learn)")
        raise typer.Exit(_INTERRUPTED_CODE)
    if as_json:
        print_json(result)
    if isinstance(result, TrainingFailed):
        raise _TrainingError(result.error)
    if result.promoted and result.version is not None:
        if not as_json:
            out.print(f"model {model} {result.version}: {result.reason}; {loads_text(plant)}")
    elif result.version is None:
        raise _TrainingError(f"model {model}: {result.reason}")
    elif not as_json:
        out.print(f"model {model} {result.version}: {result.reason}")
        if not result.waits:
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


async def _trained(plant: Plant, model: str, asked: Request, *, quiet: bool) -> TrainingResult | None:
    from streamad.commands.shared.learner import trained  # noqa: PLC0415 - help needs none

    with Bar(f"model {model}: asking the learner", quiet=quiet) as bar:
        return await trained(plant, model, asked, lambda status: show_status(bar, model, status))


def show_status(bar: Bar, model: str, status: TrainingStatus) -> None:
    """Show phase, epoch and loss of a running training on ``bar``, each new phase as a line."""
    if status.state != "running":
        return
    # The comparison comes after the last fit and takes seconds: it has a bar of its own.
    before, n_fits = (0, 1) if status.phase == "comparison" else (max(0, status.fit - 1), status.n_fits)
    text = f"model {model}: {progress_text(status)}"
    done = before * status.n_epochs + status.epoch
    bar.show(text, done, n_fits * status.n_epochs or None, line=text.partition(",")[0])
