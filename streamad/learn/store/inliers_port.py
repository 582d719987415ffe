"""What an inlier store does, whichever file or folder holds it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from streamad.learn.store.records import Mark, StoredSequence
from streamad.messages import Share


class Inliers(Protocol):
    """The sequences and marks kept for one model; see ``InlierStore`` and ``InlierDatabase``. Raises StoreError."""

    window_bytes: int
    n_dropped: int

    @property
    def problems(self) -> list[str]:
        """Return one line for each thing there that cannot be used."""
        ...

    def open(self) -> None:
        """Look at what is there; make it if nothing is."""
        ...

    def close(self) -> None:
        """Close what is open; safe to call twice."""
        ...

    def offer(self, sequence: StoredSequence, share: Share) -> bool:
        """Take a sequence into memory; return False if it is known."""
        ...

    def flush(self) -> None:
        """Make durable what was offered, and enforce the bounds."""
        ...

    def pending(self) -> int:
        """Return how many sequences wait to be written."""
        ...

    def mark(self, mark: Mark) -> None:
        """Store an operator's mark, durable once this returns."""
        ...

    def tidy_marks(self) -> None:
        """Drop old marks, now and then."""
        ...

    def purge(
        self, *, before_us: int | None = None, ids: Collection[str] | None = None, share: Share | None = None
    ) -> int:
        """Delete the sequences that meet every given condition; return how many."""
        ...

    def counts(self) -> dict[Share, int]:
        """Return how many sequences each share had within its bounds when they were counted last."""
        ...

    def count_since(self, since_us: int) -> int:
        """Return how many sequences within the bounds ended at ``since_us`` or later."""
        ...

    def read(
        self,
        share: Share,
        *,
        since_us: int | None = None,
        stored_after_us: int | None = None,
        stored_before_us: int | None = None,
    ) -> list[StoredSequence]:
        """Return a share's sequences by time."""
        ...

    def marks(self) -> dict[str, Mark]:
        """Return the mark of each id that counts."""
        ...
