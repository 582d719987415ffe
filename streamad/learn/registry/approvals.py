"""Approvals of versions: where the config wants it, a version serves only after two people approved its content.

The law and what it leaves open: docs/learning/promotion.md.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from typing import Any

import msgspec

from streamad.errors import RegistryError, UsageError
from streamad.learn.registry.manifest import Approval, Manifest, encode_manifest
from streamad.safe_text import masked

PEOPLE = 2
_LONGEST_NAME, _LONGEST_WHY = 200, 1000
_MUTABLE = ("decision", "challenged", "approvals", "claim")
"""What changes after the publication, or with the place: an approval is of the rest."""
_IGNORED = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters and marks that no reader sees."""


class NotApprovedError(RegistryError):
    """Raised when a version would come into service without the approvals of two people."""


def digest_of(manifest: Manifest) -> str:
    """Return the digest of all that a version is: what judges, by the checksums of its files, and how it came about.

    Empty values count as missing ones, so that a later streamad, whose manifests have more fields, finds the same.
    """
    content = json.loads(encode_manifest(manifest))
    kept = _without_empty({key: value for key, value in content.items() if key not in _MUTABLE})
    return hashlib.sha256(json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = ((key, _without_empty(item)) for key, item in value.items())
        return {key: item for key, item in pairs if item not in (None, "", 0, [], {})}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


def identity_of(name: str) -> str:
    """Return what is compared of a name: one person is not two by case, spaces, punctuation or form of a sign.

    That is Unicode's NFKC and case folding, then letters, their marks and numbers alone. Letters of two scripts that
    look alike are two.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join(sign for sign in _IGNORED.sub("", folded) if unicodedata.category(sign)[0] in "LMN")


def checked_words(by: str, why: str) -> tuple[str, str]:
    """Return name and reason on one line. Raises UsageError if one says nothing or is too long."""
    by, why = (masked(" ".join(text.split())) for text in (by, why))
    if not identity_of(by) or len(by) > _LONGEST_NAME:
        raise UsageError(f"{by[:40]!r} names nobody: give the name of the person who approves (--by)")
    if not identity_of(why) or len(why) > _LONGEST_WHY:
        raise UsageError(f"say in a sentence of at most {_LONGEST_WHY} characters why it should serve (--note)")
    return by, why


def with_approval(manifest: Manifest, approval: Approval) -> Manifest:
    """Return the manifest with one more approval; those of another content, or beside another version, are gone.

    Raises UsageError if the content is not what was approved, or the same person has approved it already.
    """
    name = f"model {manifest.name} {manifest.version}"
    if approval.digest != digest_of(manifest):
        raise UsageError(f"{name} has changed since it was looked at: nothing is approved; look at it again")
    kept = [each for each in counted(manifest) if each.beside == approval.beside]
    if (first := approved(manifest)) is not None:
        raise UsageError(f"{name} is approved by {first[0].by} and {first[1].by}: no further approval is needed")
    if any(identity_of(each.by) == identity_of(approval.by) for each in kept):
        raise UsageError(f"{approval.by} has approved {name} already: a second person has to")
    return msgspec.structs.replace(manifest, approvals=(*kept, approval))


def counted(manifest: Manifest) -> tuple[Approval, ...]:
    """Return the approvals of what the version is now."""
    if not manifest.approvals:
        return ()
    digest = digest_of(manifest)
    return tuple(each for each in manifest.approvals if each.digest == digest)


def approved(manifest: Manifest) -> tuple[Approval, Approval] | None:
    """Return the approvals of two people, given beside the same version in service; None without two."""
    found = counted(manifest)
    for place, second in enumerate(found):
        for first in found[:place]:
            if first.beside == second.beside and identity_of(first.by) != identity_of(second.by):
                return first, second
    return None


def approval_text(approval: Approval) -> str:
    """Return who approved when and why, for people."""
    known = "" if approval.authenticated else " (name as given)"
    return f"{approval.at:%Y-%m-%d %H:%M:%S} UTC by {approval.by}{known}: {approval.why}"


def check_approved(manifest: Manifest) -> None:
    """Raise NotApprovedError, which says what is missing, without the approvals of two people."""
    if approved(manifest) is not None:
        return
    found = counted(manifest)
    so_far = f"{found[-1].by} alone has approved it" if found else "nobody has approved it"
    if not found and manifest.approvals:
        so_far = "it has changed since it was approved"
    raise NotApprovedError(
        f"model {manifest.name}: {manifest.version} is not put into service: two people have to approve it "
        f"(learning.promote, model.locked), and {so_far}: streamad models approve {manifest.version}"
    )
