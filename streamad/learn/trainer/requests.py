"""Requests for trainings and their results: the messages between triggers, trainer, worker and operator."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from streamad.errors import RegistryError
from streamad.learn.registry.registry import Registry
from streamad.system.files import write_atomically, writing
from streamad.system.opening import STATE_FOLDER, read_state
from streamad.system.rights import reason
from streamad.system.untrusted_json import decode_json
from streamad.telemetry.logs import get_logger
from streamad.types import UnixUs

TrainingReason: TypeAlias = Literal["first", "effort", "schedule", "inliers", "drift", "command", "relearn"]
FailureKind: TypeAlias = Literal["failed", "refused", "interrupted"]
"""failed: no version was made. refused: another training runs. interrupted: it resumes at the next start."""


class TrainingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Why to train, and when it was requested (Unix microseconds; from its start on: when a process took it).

    ``effort``: the first training was quick, this one has the configured effort. ``since_us``, for relearn only: train
    on what ended since then, whatever the decision was. ``detail`` is for people.
    """

    reason: TrainingReason
    requested_us: UnixUs
    since_us: UnixUs | None = None
    detail: str = ""


class SecondOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The second challenger of a training, which uses operators' marks: its ``version`` (None: it failed).

    ``waits``: it is not worse, and a person has to promote it.
    """

    version: str | None
    promoted: bool
    waits: bool
    reason: str
    figures: dict[str, float] = {}


class TrainingOutcome(msgspec.Struct, frozen=True, kw_only=True, tag="trained"):
    """A completed training: the ``version`` it made (None: it made none), and the decision with its reason.

    ``second`` is the challenger that uses operators' marks, if they would change the model. ``n_excluded`` sequences
    were kept out of training by marks, ``n_capped`` more were not, beyond ``learning.feedback_share``.
    """

    model: str
    version: str | None
    promoted: bool
    reason: str
    request: TrainingRequest
    figures: dict[str, float] = {}
    second: SecondOutcome | None = None
    n_excluded: int = 0
    n_capped: int = 0

    @property
    def capped(self) -> str:
        """Return what the bound on marks has left without effect."""
        return (
            f"{self.n_capped} more sequences called confirmed or veto train all the same: marks keep out at most "
            f"learning.feedback_share, here {self.n_excluded}; the marks received first count"
        )


class TrainingFailed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """A training without result; ``error`` is one line that says what to do. The champion stays."""

    model: str
    error: str
    request: TrainingRequest
    kind: FailureKind = "failed"


TrainingResult: TypeAlias = TrainingOutcome | TrainingFailed


def post_request(registry: Registry, name: str, request: TrainingRequest) -> Path:
    """Ask the workers of the model ``name`` to train, from any process; returns the file, there until one takes it.

    The same request posted twice is one. Raises RegistryError, OutputError.
    """
    folder = registry.training_folder(name) / "requests"
    content = msgspec.json.encode(request)
    with writing(folder):
        folder.parent.mkdir(STATE_FOLDER, parents=True, exist_ok=True)
        folder.mkdir(STATE_FOLDER, exist_ok=True)
    path = folder / f"{hashlib.blake2b(content, digest_size=8).hexdigest()}.json"
    write_atomically(path, content, is_state=True)
    return path


def posted_requests(registry: Registry, name: str) -> dict[Path, TrainingRequest]:
    """Return the posted requests that no worker has taken yet, oldest first. Raises RegistryError.

    A file that holds no request is logged and renamed.
    """
    folder = registry.training_folder(name) / "requests"
    try:
        found = {path: _read(path) for path in folder.glob("*.json") if not path.name.startswith(".")}
    except OSError as error:
        raise RegistryError(f"cannot read {folder}: {reason(error, folder, 'read')}") from error
    requests = [(path, request) for path, request in found.items() if request is not None]
    return dict(sorted(requests, key=lambda posted: (posted[1].requested_us, posted[0].name)))


def _read(path: Path) -> TrainingRequest | None:
    try:
        return decode_json(read_state(path), TrainingRequest)
    except FileNotFoundError:  # taken at this very moment
        return None
    except msgspec.DecodeError as error:
        get_logger().warning("not a training request: renamed to .unreadable", path=str(path), error=str(error))
        with suppress(OSError):
            path.rename(path.with_suffix(".unreadable"))
        return None
