"""The message about a decision: an entry of the decision log, linked to the one before it by that one's hash."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from streamad.messages.fields import SCHEMA_VERSION, CreatedAt, Version, doc

Identity: TypeAlias = Literal["authenticated", "claimed", "program"]
"""How the name of who decided is known."""


class DecisionEntry(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="decision"):
    """A decision about the plant's models, config or sequences: an entry in the hash chain of its writer.

    Its last field is the SHA-256 of the bytes before ``,"hash":`` as they are stored, and the next entry of the same
    writer repeats it as ``previous``. The same entry twice, byte for byte, is one entry.
    """

    kind: Annotated[
        str,
        doc(
            "A stable identifier: config, model (what is in service from here on); promote, rollback, decline, "
            "approve; refuse, wait (the rule left a version out of service, or to people); mark; retrain, relearn, "
            "purge (asked of the learner); undone (an entry whose effect failed); "
            "doubtful (one of which no answer said whether it took effect)."
        ),
    ]
    subject: Annotated[
        str, doc("What it is about: a model and its version, the id of a sequence, a digest of the config.")
    ]
    who: Annotated[str, doc("Who decided: a person, or the program whose rule did.")]
    identity: Annotated[
        Identity,
        doc(
            "authenticated: streamad, or a proxy before it, has checked the name. claimed: the name is what the "
            "operating system or an option says. program: no person decided."
        ),
    ]
    reason: Annotated[str, doc("Why, as text; empty if nobody said.")] = ""
    details: Annotated[dict[str, str], doc("What else is known, by name, such as the digest of a version.")] = {}
    created_at: CreatedAt
    writer: Annotated[str, doc("Id of the writer: one chain each.")]
    number: Annotated[int, doc("Number of the entry in its chain, from 1.")]
    previous: Annotated[str, doc("The hash of the writer's entry before this one; empty for the first.")]
    schema_version: Version = SCHEMA_VERSION
    hash: Annotated[
        str, doc('SHA-256, in hex, of the bytes of this message before `,"hash":`. Always the last field.')
    ] = ""
