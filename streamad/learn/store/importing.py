"""Takes what the workers of a plant stored in shards into the learner's store."""

from __future__ import annotations

from dataclasses import dataclass

from streamad.learn.store.database import InlierDatabase
from streamad.learn.store.inliers import InlierStore
from streamad.messages import SHARES


@dataclass(frozen=True, slots=True)
class Imported:
    """How many sequences and marks were new, and a line for each file that cannot be read."""

    sequences: int
    marks: int
    problems: tuple[str, ...]


def import_shards(shards: InlierStore, store: InlierDatabase) -> Imported:
    """Take all sequences and marks of one model; what is there already is left as it is. Raises StoreError.

    Marks come first: sequences that the bounds keep for their marks alone would be dropped without them.
    """
    shards.open()
    marks = shards.all_marks()
    for mark in marks:
        store.mark(mark)
    n_new = 0
    for share in SHARES:
        n_new += sum(store.offer(one, share) for one in shards.read(share))
        store.flush()
    return Imported(n_new, len(marks), tuple(shards.problems))
