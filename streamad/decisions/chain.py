"""The chain of a writer's decisions: each entry holds its own hash and that of the one before, over bytes as stored.

Laws of a chain, whoever writes it:

1. An entry is a link: ``hash`` is the SHA-256 of its bytes before ``,"hash":``, so no canonical form is needed.
2. Entry 1 has no ``previous``; entry n + 1 has number n + 1 and the hash of entry n.
3. The same bytes again are the same entry: who writes at least once may repeat itself.
4. Two entries of one number that differ are a fork: two processes wrote under one id.

A worker's entries are part of its commits, exactly once like all its messages. Laws of every other writer:

5. The entry is durable before what it decides takes effect. A crash between the two leaves an entry whose effect never
   came, never an effect without its entry; an effect that fails is followed by an entry ``undone``, or
   ``doubtful`` if no answer said whether it came.
6. A chain goes on from its last entry in the place where it is written, in this process or the next.
7. In a file writers take turns (a lock), so that two of one id make one chain. A topic has no lock: two processes of
   one id on two machines fork, which ``streamad audit verify`` shows.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from streamad.messages import DecisionEntry
from streamad.messages.decision import Identity
from streamad.system.untrusted_json import decode_json

_HASH = re.compile(rb',"hash":"([0-9a-f]{64})"\}')
_HASH_BYTES: Final = len(b',"hash":""}') + 64
_NO_HASH = b',"hash":""}'
MOST_ENTRIES: Final = 2**53
"""Of a chain: as many as every reader of JSON can number."""
_MOST_FOLLOWED: Final = MOST_ENTRIES // 2
"""A number beyond that somebody made up, to leave no room for what follows it."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision that is not in the log yet. The fields are those of ``DecisionEntry``."""

    kind: str
    subject: str
    who: str
    identity: Identity
    reason: str = ""
    details: dict[str, str] = field(default_factory=dict)


class Head(NamedTuple):
    """The last entry of a chain; number 0: there is none."""

    number: int = 0
    hash: str = ""


def linked(decided: Decided, writer: str, head: Head, at: datetime) -> DecisionEntry:
    """Return the entry that follows ``head`` in the chain of ``writer``."""
    entry = DecisionEntry(
        kind=decided.kind,
        subject=decided.subject,
        who=decided.who,
        identity=decided.identity,
        reason=decided.reason,
        details=decided.details,
        created_at=at,
        writer=writer,
        number=head.number + 1,
        previous=head.hash,
    )
    content = msgspec.json.encode(entry)
    return msgspec.structs.replace(entry, hash=hashlib.sha256(content.removesuffix(_NO_HASH)).hexdigest())


def head_of(entry: DecisionEntry) -> Head:
    """Return ``entry`` as the head of its chain."""
    return Head(entry.number, entry.hash)


def followed_in(content: bytes, writer: str) -> DecisionEntry | None:
    """Return the entry of ``writer`` that ``content`` holds, None for another thing, or one that nothing follows."""
    if msgspec.json.encode(writer) not in content:  # most are another writer's: to look costs least
        return None
    try:
        entry = entry_in(content)
    except msgspec.ValidationError:
        return None
    return entry if entry.writer == writer and entry.number < _MOST_FOLLOWED else None


def entry_in(content: bytes) -> DecisionEntry:
    """Return the entry that ``content`` holds, as it is stored. Raises ValidationError if its hash is another."""
    tail = _HASH.fullmatch(content[-_HASH_BYTES:])
    if tail is None:
        raise msgspec.ValidationError("it is no entry: it does not end with a hash")
    found = hashlib.sha256(content[:-_HASH_BYTES]).hexdigest()
    if found != tail[1].decode():
        raise msgspec.ValidationError(f"it was changed: its bytes have the hash {found}, it says {tail[1].decode()}")
    return _decoded(content)


def _decoded(content: bytes) -> DecisionEntry:
    """Return the entry, which reads the same for everybody: on one line, each field once."""
    try:
        if b"\n" in content:
            raise ValueError("it has more than one line")
        entry = decode_json(content, DecisionEntry)
        json.loads(content.decode(), object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:  # of fields that this release does not know
        raise msgspec.ValidationError(f"it is no entry: {error}") from None
    if not 0 < entry.number <= MOST_ENTRIES:
        raise msgspec.ValidationError("it is no entry: its number is none")
    return entry


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it has a field twice, so readers of it differ")
    return found
