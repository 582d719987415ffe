"""Texts about sequences that are far shorter than the usual one, or differ widely: they may be cut wrongly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamad.commands.shared.console import count
from streamad.commands.shared.recurring import Place
from streamad.types import FinishedSequence

_WIDE = 8.0
_ENDS = (0.05, 0.95)
"""Quantiles of the lengths: one broken sequence among many is no sign."""
_LONG = 0.75
"""Quantile of the lengths that is long: in pauses there may be as many fragments as batches."""
_FRAGMENT = 10
"""A sequence so many times shorter than that may be a fragment."""
_ADVICE = (
    "sequences of one kind have similar lengths: check decode.fields.stream, decode.fields.sequence and sequences.end"
)


def odd_lengths(sequences: Sequence[FinishedSequence], places: Sequence[Place]) -> tuple[str, str] | None:
    """Return what is said of fragments among ``sequences``, else of lengths that differ widely, and the advice."""
    lengths = [sequence.n_samples for sequence in sequences]
    long = float(np.quantile(lengths, _LONG)) if lengths else 0.0
    short = [at for at, n in enumerate(lengths) if n * _FRAGMENT <= long]
    without_id = any(place.key is not None for place in places) and all(places[at].key is None for at in short)
    if len(short) >= 2 and (without_id or 2 * len(short) < len(lengths)):
        advice = "they have no sequence id, as in pauses: write sequences.without_id: skip"
        return _fragments(sequences, short), advice if without_id else _ADVICE
    wide = _wide_lengths(lengths)
    return None if wide is None else (wide, _ADVICE)


def _fragments(sequences: Sequence[FinishedSequence], short: list[int]) -> str:
    """Return what is said of the sequences at the indexes ``short``, far shorter than the others."""
    example, lengths = sequences[short[0]], [sequences[at].n_samples for at in short]
    usual = np.median([one.n_samples for at, one in enumerate(sequences) if at not in {*short}])
    sizes = f"{min(lengths)} to {max(lengths)} samples" if len({*lengths}) > 1 else count(lengths[0], "sample")
    return (
        f"{len(short)} of {len(sequences)} sequences have {sizes}, the usual one has {usual:g}: they may be "
        f"fragments, such as {example.sequence} of {example.stream}"
    )


def _wide_lengths(n_samples: Sequence[int]) -> str | None:
    """Return the range of the lengths of sequences if they differ widely, as where sequences are cut wrongly."""
    if len(n_samples) < 2:
        return None
    low, high = np.quantile(n_samples, _ENDS)
    if high <= _WIDE * max(low, 1.0):
        return None
    return f"{len(n_samples)} sequences have {min(n_samples)} to {max(n_samples)} samples"
