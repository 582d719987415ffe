"""How far a learner is: a file that it writes, for the runs and commands on its machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from streamad.errors import StreamadError
from streamad.learn.parts import store_path
from streamad.plant import Plant
from streamad.system.files import write_atomically
from streamad.system.opening import read_state
from streamad.system.untrusted_json import decode_json
from streamad.telemetry.metrics import LearningCounters


class ModelState(msgspec.Struct, frozen=True, kw_only=True):
    """The learner's state of one model: sequences by share, the training that runs ("": none), and its counters."""

    accepted: int = 0
    reserve: int = 0
    aside: int = 0
    training: str = ""
    counters: LearningCounters = msgspec.field(default_factory=LearningCounters)


class LearnerState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of each model by name, and the events emitted since the learner's start by kind."""

    models: dict[str, ModelState] = {}
    events: dict[str, int] = {}


class StateFile:
    """The file ``path`` with a learner's state; what cannot be read or written is left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = b""

    def write(self, state: LearnerState) -> None:
        """Write the state if it differs from the one that was written last."""
        content = msgspec.json.encode(state)
        if content != self._written:
            with suppress(StreamadError):  # it is for people; the next one may succeed
                write_atomically(self._path, content, is_state=True)
                self._written = content

    def read(self) -> LearnerState:
        """Return the state, an empty one if there is no file."""
        with suppress(OSError, msgspec.DecodeError):
            return decode_json(read_state(self._path), LearnerState)
        return LearnerState()


def state_file(plant: Plant) -> StateFile:
    """Return the file of the learner of ``plant`` on this machine."""
    return StateFile(store_path(plant).with_name("learner.json"))


def cold_start_text(n_kept: int, n_wanted: int, *, is_training: bool, unit: str = "") -> str:
    """Return the progress to a first model, "i of n" and perhaps ``unit``, i at most n.

    Examples:
        >>> cold_start_text(12, 200, is_training=False)
        '12 of 200'
        >>> cold_start_text(230, 200, is_training=True)
        '200 of 200, the first model is being trained'
        >>> cold_start_text(230, 200, is_training=True, unit="sequences")
        '200 of 200 sequences, the first model is being trained'
    """
    text = f"{min(n_kept, n_wanted)} of {n_wanted} {unit}".rstrip()
    return f"{text}, the first model is being trained" if is_training else text
