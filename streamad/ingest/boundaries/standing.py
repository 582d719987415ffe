"""Standing words: a stream's newest begin word, end word and tags place its samples without an id.

Law: the newest word before a sample, by event time and then by position, says where the sample belongs. The standing
depends on the messages alone. It lies among the stream's clocks, with the words that still wait for their turn, so
rereading starts with the standing of that time (tests/unit/ingest/test_boundary_laws.py).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TypeAlias

import msgspec
import numpy as np

from streamad.ingest.sequences.clocks import StreamClocks
from streamad.ingest.sequences.runs import Run, joined_routes
from streamad.messages import EndReason
from streamad.partition_progress import WaitingBoundary
from streamad.settings.boundaries import BoundaryRules
from streamad.types import Position

Ended: TypeAlias = tuple[EndReason, str | None, bool]
"""Why a sequence ends, its id, and whether all of the stream end."""
_BLOCK = 64
_NO_ROW = np.empty((1, 0), dtype=np.float32)


class StreamBoundaries:
    """Applies boundaries to the standing of one stream, which lies in its clocks, and finds its samples' sequences.

    ``skips``: samples without an id are left out (``sequences.without_id``).
    """

    __slots__ = ("_clocks", "_has_changed", "_rules", "_skips")

    def __init__(self, rules: BoundaryRules, clocks: StreamClocks, *, skips: bool) -> None:
        self._rules = rules
        self._clocks = clocks
        self._skips = skips
        self._has_changed = False  # by the newest boundary

    @property
    def carries(self) -> bool:
        """Return whether what one message says holds for later ones, so that a restart carries it on."""
        return self._rules.stand

    @property
    def outlives_silence(self) -> bool:
        """Return whether a tag was read: its reading holds however long the stream is silent."""
        standing = self._clocks.standing
        has_tags = self._rules.by_tag or self._rules.by_id_tag
        return has_tags and (standing.state is not None or standing.is_named or bool(standing.blocks))

    @property
    def lacks_tag(self) -> bool:
        """Return whether a tag that decides was never read."""
        standing = self._clocks.standing
        return (self._rules.by_tag and standing.state is None) or (self._rules.by_id_tag and not standing.is_named)

    # --- what stands ---

    def enter(self, run: Run) -> Ended | None:
        """Let what ``run`` says at its beginning stand; return what it ends: the reason, an id, and whether all end."""
        boundary, standing = run.boundary, self._clocks.standing
        self._has_changed = False
        if boundary is None:
            return None
        time_us = run.first_us
        ended: Ended | None = None
        if boundary.state is not None:
            if not boundary.state:
                ended = "while", None, True
            if not self._rules.by_tag:
                return ended
            standing = msgspec.structs.replace(standing, state_us=time_us)
            if boundary.state is not standing.state:
                standing = msgspec.structs.replace(standing, state=boundary.state, since_us=time_us, is_late=False)
                self._has_changed = True
        if boundary.names or boundary.begins:
            key = boundary.sequence if boundary.names else run.sequence
            is_same = standing.is_named and standing.sequence == key and (boundary.names or key is not None)
            if standing.is_named and not is_same and ended is None:
                ended = "change" if boundary.names else "begin", standing.sequence, False
            routes = joined_routes(standing.routes, run.routes) if is_same else run.routes
            standing = msgspec.structs.replace(standing, is_named=True, sequence=key, routes=routes, named_us=time_us)
            if not is_same:
                standing = msgspec.structs.replace(standing, since_us=time_us, is_late=False)
                self._has_changed = True
        self._clocks.standing = standing
        return ended

    def leave(self, run: Run) -> tuple[bool, str | None]:
        """Let the end word of ``run`` stand; return whether it is about what stood, and the id of what it ends."""
        standing = self._clocks.standing
        is_ours = standing.is_named and run.sequence in (None, standing.sequence)
        key = standing.sequence if run.sequence is None else run.sequence
        if is_ours:
            self._clocks.standing = msgspec.structs.replace(
                standing, is_named=False, sequence=None, routes=(), since_us=run.first_us, named_us=run.first_us
            )
            self._has_changed = True
        return is_ours, key

    def came_late(self) -> None:
        """Note that what came last is late: if it changed what stands, samples since then are not in its sequence."""
        if self._has_changed:
            self._clocks.standing = msgspec.structs.replace(self._clocks.standing, is_late=True)

    def is_newer(self, run: Run) -> bool:
        """Return whether what ``run`` says is newer than all that was said of the same before."""
        boundary, standing = run.boundary, self._clocks.standing
        assert boundary is not None
        before_us = standing.state_us if boundary.state is not None else standing.named_us
        return before_us is None or run.first_us >= before_us

    # --- where samples belong ---

    def is_inside(self, run: Run) -> bool:
        """Return whether the samples of ``run`` lie in a sequence, if it may lack an id."""
        rules, standing = self._rules, self._clocks.standing
        says_no = run.boundary is not None and run.boundary.state is False
        if (not standing.state) if rules.by_tag else says_no:
            return False
        return run.sequence is not None or standing.is_named or not (rules.by_begin or rules.by_id_tag)

    def belonging(self, run: Run) -> Run | None:
        """Return ``run`` with the id of its sequence; None if its samples lie outside any, or it lacks an id."""
        standing = self._clocks.standing
        if not self.is_inside(run):
            return None
        if run.sequence is not None:
            return run
        if standing.sequence is None and self._skips:
            return None
        if standing.sequence is None and not standing.routes:
            return run
        return replace(run, sequence=standing.sequence, routes=joined_routes(standing.routes, run.routes))

    def taken(self, run: Run) -> Run | None:
        """Return the next run in event-time order as ``belonging`` does; the first one of what came late is torn."""
        own, standing = self.belonging(run), self._clocks.standing
        if own is None or not standing.is_late or (run.sequence is not None and not self._rules.by_tag):
            return own
        self._clocks.standing = msgspec.structs.replace(standing, is_late=False)
        return replace(own, is_torn=True)

    def begun(self, run: Run, own: Run) -> Run:
        """Return ``own``, the samples of ``run`` in their sequence, with the time of what says that it begins."""
        if not self._rules.stand or run.sequence is not None:
            return own
        return replace(own, begun_us=self._clocks.standing.since_us)

    def late(self, run: Run) -> tuple[Run | None, Run | None]:
        """Return the late samples of ``run`` that lie before what stands, which nobody can place, and the others."""
        since_us = self._clocks.standing.since_us
        is_placed = run.sequence is not None or not self._rules.stand
        if is_placed or since_us is None or run.first_us >= since_us:
            return None, run
        return run.split_at(since_us)

    # --- boundaries that wait for their turn ---

    def wait(self, run: Run) -> None:
        """Note that the boundary of ``run`` waits: a restart from a later record takes it from here."""
        if not self._rules.stand or run.boundary is None:
            return
        position, standing = run.position, self._clocks.standing
        waiting = WaitingBoundary(
            run.first_us, position.offset, position.index, run.arrived_us, run.boundary, run.sequence, run.routes
        )
        blocks = standing.blocks
        if blocks and len(blocks[-1]) < _BLOCK:
            blocks = (*blocks[:-1], (*blocks[-1], waiting))
        else:
            blocks = (*blocks, (waiting,))
        self._clocks.standing = msgspec.structs.replace(standing, blocks=blocks)

    def turn(self, run: Run) -> None:
        """Note that the boundary of ``run`` waits no more."""
        blocks = () if run.boundary is None else self._clocks.standing.blocks
        for number, block in enumerate(blocks):
            for at, each in enumerate(block):  # nearly always the first one
                if each.offset == run.position.offset and each.index == run.position.index:
                    rest = block[:at] + block[at + 1 :]
                    blocks = blocks[:number] + ((rest,) if rest else ()) + blocks[number + 1 :]
                    self._clocks.standing = msgspec.structs.replace(self._clocks.standing, blocks=blocks)
                    return

    def restored(self) -> list[Run]:
        """Return the boundaries that waited at the restart, without their readings: those of a done record."""
        self._clocks.standing = self._clocks.standing.restored
        waiting = chain.from_iterable(self._clocks.standing.blocks)
        before = self._clocks.before(None, None)
        return [
            Run(
                each.sequence,
                np.array([each.time_us], dtype=np.int64),
                _NO_ROW,
                Position(each.offset, each.index),
                before,
                arrived_us=each.arrived_us,
                end=each.boundary.ends,
                routes=each.routes,
                boundary=msgspec.structs.replace(each.boundary, is_bare=True),
            )
            for each in waiting
        ]
