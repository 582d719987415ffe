"""Verifies the decision log: each writer's chain, its first break, and whether a kept head is still in it.

What is found: any changed byte of an entry, entries that were removed, swapped, put elsewhere or written by two
processes under one id, and, by a kept head, an end that was cut off. What is not: whoever may write the log can make a
whole chain anew, or drop one, and only a head that was kept elsewhere tells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from streamad.decisions.chain import Head, entry_in, head_of
from streamad.errors import UsageError
from streamad.messages import DecisionEntry

_PARTS = 3
_NONE = Head()


class Break(NamedTuple):
    """The first place at which a chain, or the log, is not whole: what was expected there, and what is there."""

    place: str
    expected: str
    found: str


class KeptHead(NamedTuple):
    """The head of a chain as ``verify`` printed it once, and somebody kept it."""

    writer: str
    number: int
    hash: str

    @classmethod
    def parsed(cls, text: str) -> KeptHead:
        """Return the head in ``WRITER:NUMBER:HASH``. Raises UsageError."""
        parts = text.strip().rsplit(":", _PARTS - 1)
        if len(parts) != _PARTS or not parts[1].isdecimal() or not parts[1].isascii():
            raise UsageError(f"--expect {text}: write WRITER:NUMBER:HASH, as streamad audit verify prints it")
        return cls(parts[0], int(parts[1]), parts[2].lower())

    def __str__(self) -> str:
        return f"{self.writer}:{self.number}:{self.hash}"


@dataclass(slots=True)
class Chain:
    """What was read of a writer's chain; ``repeats``: entries that came again, the same byte for byte."""

    writer: str
    head: Head = _NONE
    entries: int = 0
    repeats: int = 0
    broken: Break | None = None
    hashes: dict[int, str] = field(default_factory=dict)

    @property
    def kept(self) -> KeptHead:
        """Return the head, to keep."""
        return KeptHead(self.writer, *self.head)

    def take(self, entry: DecisionEntry, place: str) -> bool:
        """Take the next entry that was read; return False for one that came again."""
        if self.hashes.get(entry.number) == entry.hash:
            self.repeats += 1
            return False
        follows = head_of(entry).number == self.head.number + 1 and entry.previous == self.head.hash
        if not follows and self.broken is None:
            self.broken = self._break(entry, place)
        self.entries += 1
        self.hashes.setdefault(entry.number, entry.hash)
        if entry.number > self.head.number:
            self.head = head_of(entry)
        return True

    def _break(self, entry: DecisionEntry, place: str) -> Break:
        number, hash_ = self.head
        expected = f"entry {number + 1}" + (f" after {hash_}" if number else ", the first")
        if entry.number > number + 1:
            n = entry.number - number - 1
            return Break(
                place, expected, f"entry {entry.number}: {n} missing" + ("" if number else " at the beginning")
            )
        if entry.number <= number:
            return Break(place, expected, f"entry {entry.number} again, and another one: moved, or a second process")
        return Break(place, expected, f"entry {entry.number} after {entry.previous or 'nothing'}")


@dataclass(slots=True)
class Verifying:
    """Takes what lies in the log, in its order, place by place; ``damaged`` is the first that is no entry, or torn."""

    chains: dict[str, Chain] = field(default_factory=dict)
    damaged: Break | None = None
    n_damaged: int = 0

    def take(self, content: bytes, place: str) -> DecisionEntry | None:
        """Take what is stored at ``place``; return the entry, None if it came again or is none."""
        try:
            entry = entry_in(content)
        except msgspec.ValidationError as error:
            self.damage(place, str(error))
            return None
        chain = self.chains.setdefault(entry.writer, Chain(entry.writer))
        return entry if chain.take(entry, place) else None

    def damage(self, place: str, found: str) -> None:
        """Note that what lies at ``place`` is no entry."""
        self.n_damaged += 1
        self.damaged = self.damaged or Break(place, "an entry", found)

    def lost(self, kept: KeptHead) -> str | None:
        """Return why the log does not go on from ``kept``, None if it does."""
        chain = self.chains.get(kept.writer)
        if chain is None:
            return f"{kept}: the log has no entry of this writer"
        if (found := chain.hashes.get(kept.number)) is None:
            n = kept.number - chain.head.number
            cut = f"the chain ends at entry {chain.head.number}: {n} are cut off" if n > 0 else "this entry is missing"
            return f"{kept}: {cut}"
        return None if found == kept.hash else f"{kept}: entry {kept.number} has the hash {found} now: it was rewritten"

    @property
    def is_whole(self) -> bool:
        """Return whether every chain is whole and all that lies there belongs to one."""
        return self.damaged is None and all(chain.broken is None for chain in self.chains.values())
