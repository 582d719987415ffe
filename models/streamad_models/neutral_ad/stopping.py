"""When a training ends: after its epochs, at a loss that stands still, or at its time limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from streamad_models.neutral_ad.options import TrainingOptions

Reason: TypeAlias = Literal["epochs", "patience", "time_limit"]

LEAST_FALL: Final = 0.01  # of the loss, which starts at 1 whatever the data
HIGHEST_STILL_LOSS: Final = 0.9  # above it the training has hardly begun: deep encoders wait long at 1


def stop_reason(options: TrainingOptions, losses: Sequence[float], duration_s: float) -> Reason | None:
    """Return why a training with these losses of its epochs ends now, None if it goes on.

    ``patience`` P: the lowest loss is less than 0.01 below that of P epochs before, and below 0.9. The time limit holds
    at an epoch's end, so that at least one epoch is trained.
    """
    if len(losses) >= options.epochs:
        return "epochs"
    if options.patience is not None and stands_still(losses, options.patience):
        return "patience"
    if options.time_limit_s is not None and losses and duration_s >= options.time_limit_s:
        return "time_limit"
    return None


def stands_still(losses: Sequence[float], patience: int) -> bool:
    """Return whether the last ``patience`` epochs lowered the lowest loss by less than 0.01.

    >>> [stands_still(losses, 2) for losses in ([0.5, 0.4, 0.3], [0.5, 0.495, 0.498], [1.0, 1.0, 1.0])]
    [False, True, False]
    """
    if len(losses) <= patience:
        return False
    before, now = min(losses[:-patience]), min(losses)
    return now < HIGHEST_STILL_LOSS and before - now < LEAST_FALL


def remarks_on_stop(reason: Reason | None, losses: Sequence[float], options: TrainingOptions) -> tuple[str, ...]:
    """Return the remark on a training that its time limit has ended; other ends need none."""
    if reason != "time_limit":
        return ()
    at = f"epoch {len(losses)} of at most {options.epochs} (loss {losses[-1]:.3f})"
    return (f"training stopped at its time limit of {options.time_limit_s:g} s, after {at}",)
