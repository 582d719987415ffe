"""The chain of a writer's decisions: each entry holds its own hash and that of the one before, over bytes as stored.

Laws of a chain, whoever writes it:

1. An entry is a link: ``hash`` is the SHA-256 of its bytes before ``,"hash":``, so no canonical form is needed.
2. Entry 1 has no ``previous``; entry n + 1 has number n + 1 and the hash of entry n.
3. The same bytes again are the same entry: who writes at least once may repeat itself.
4. Two entries of one number that differ are a fork: two processes wrote under one id.

A worker's entries are part of its commits, exactly once like all its messages. Laws of every other writer:

5. The entry is durable before what it decides takes effect. A crash between the two leaves an entry whose effect never
   came, never an effect without its entry; an effect that fails is followed by an entry ``undone``.
6. A chain goes on from its last entry in the place where it is written, in this process or the next.
7. In a file writers take turns (a lock), so that two of one id make one chain. A topic has no lock: two processes of
   one id on two machines fork, which ``streamad audit verify`` shows.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from streamad.messages import DecisionEntry
from streamad.messages.decision import Identity

_HASH = re.compile(rb',"hash":"([0-9a-f]{64})"\}')
_HASH_BYTES: Final = len(b',"hash":""}') + 64
_NO_HASH = b',"hash":""}'


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
    try:
        return msgspec.json.decode(content, type=DecisionEntry)
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"it is no entry: {error}") from None
