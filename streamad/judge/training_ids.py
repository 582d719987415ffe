"""The sequences that trained or calibrated a model, as hashes of their ids: judging them again flatters the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class TrainingIds:
    """64-bit hashes, ascending; two different ids are taken for one in about one of 10^14 lookups among 100,000."""

    hashes: npt.NDArray[np.uint64]
    _known: frozenset[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", frozenset(self.hashes.tolist()))

    @classmethod
    def of(cls, ids: Iterable[str]) -> TrainingIds:
        """Return those of ``ids``: "stream/sequence" from recordings, ids of verdicts from the inlier store."""
        return cls(np.unique(np.array([_hash(name) for name in ids], dtype=np.uint64)))

    def __contains__(self, name: str) -> bool:
        """Return whether ``name`` is among them."""
        return _hash(name) in self._known


NO_TRAINING_IDS = TrainingIds(np.empty(0, np.uint64))


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest())
