"""The results of trainings: the messages from the training process to its learner, and to who looks at the status."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from streamad.learn.store.records import TrainingRequest

FailureKind: TypeAlias = Literal["failed", "interrupted"]
"""failed: no version was made. interrupted: it resumes at the next start."""


class SecondOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The second challenger of a training, which uses operators' marks: its ``version`` (None: it failed).

    ``waits``: it is not worse, and a person has to promote it. ``without_looks``: why it has no looks at running
    sequences, if some are wanted.
    """

    version: str | None
    promoted: bool
    waits: bool
    reason: str
    figures: dict[str, float] = {}
    without_looks: str = ""


class TrainingOutcome(msgspec.Struct, frozen=True, kw_only=True, tag="trained"):
    """A completed training: the ``version`` it made (None: it made none), and the decision with its reason.

    ``waits``: it is not worse, and two people have to approve it.
    ``second`` is the challenger that uses operators' marks, if they would change the model. ``n_excluded`` sequences
    were kept out of training by marks, ``n_capped`` more were not, beyond ``learning.feedback_share``.
    ``without_looks``: why the version has no looks at running sequences, if some are wanted.
    """

    model: str
    version: str | None
    promoted: bool
    reason: str
    request: TrainingRequest
    waits: bool = False
    figures: dict[str, float] = {}
    second: SecondOutcome | None = None
    n_excluded: int = 0
    n_capped: int = 0
    without_looks: str = ""

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
