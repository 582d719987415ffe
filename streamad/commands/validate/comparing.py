"""What two runs on the same recordings said, compared message by message."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from pydantic import BaseModel

from streamad.messages import OutputRecord, Role
from streamad.settings.fields import ConfigSection

COMPARED: Final[tuple[Role, ...]] = ("warnings", "alerts", "verdicts", "dead_letters", "late")
SCORES_AGREE: Final = 1e-4
"""As the stored probe of a model must (``learn/registry/arrays.py``): windows that happen to be scored together change
the last digits of a score."""
COMPARED_TEXT: Final = (
    "every field of the verdicts, in their order, and of alerts, warnings, dead letters and late records, but for "
    f"created_at, the time of judging; scores to 1 part in {round(1 / SCORES_AGREE)}, as windows that are scored "
    "together change their last digits, and p-values, which follow from scores"
)


class _Said(NamedTuple):
    """A message without what may differ: its digest, its score and p-value, and what it is about."""

    digest: bytes
    score: float | None
    p_value: float | None
    about: str

    def agrees(self, other: _Said) -> bool:
        if self.digest != other.digest or (self.score is None) != (other.score is None):
            return False
        if self.score is None or other.score is None or self.score == other.score:
            return self.p_value == other.p_value
        return abs(self.score - other.score) <= SCORES_AGREE * max(abs(self.score), abs(other.score))


class Outputs:
    """What a run said, by role and by stream, or by partition of what has none."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], list[_Said]] = {}

    def add(self, role: str, message: Mapping[str, Any]) -> None:
        """Take one message, as its JSON says it."""
        content = dict(message)
        content.pop("created_at", None)
        score, p_value = content.pop("score", None), content.pop("p_value", None)
        text = json.dumps(content, sort_keys=True, ensure_ascii=True).encode()
        stream = content.get("stream")
        of = str(stream) if stream is not None else str((content.get("origin") or {}).get("partition"))
        about = f"sequence {content['sequence']!r} of " if content.get("sequence") is not None else ""
        said = _Said(blake2b(text, digest_size=16).digest(), score, p_value, f"{about}{of!r}")
        self._said.setdefault((role, of), []).append(said)

    def difference(self, other: Outputs) -> str:
        """Return the first difference to ``other``, "" if there is none. Of verdicts the order counts, too."""
        for role, of in sorted(self._said.keys() | other._said.keys()):
            own, others = self._said.get((role, of), []), other._said.get((role, of), [])
            name = role.replace("_", " ")
            if len(own) != len(others):
                return f"{len(own)} and {len(others)} {name} of {of!r}"
            pairs = zip(_sorted(role, own), _sorted(role, others), strict=True)
            if (found := next((one for one, another in pairs if not one.agrees(another)), None)) is not None:
                return f"{name} of {found.about} differ"
        return ""


def _sorted(role: str, said: list[_Said]) -> list[_Said]:
    return said if role == "verdicts" else sorted(said, key=lambda each: (each.digest, each.score or 0.0))


class OutputSink:
    """A sink of one role that keeps what a replay said."""

    options_model: type[BaseModel] = ConfigSection

    def __init__(self, role: Role, outputs: Outputs) -> None:
        self._role, self._outputs = role, outputs

    async def write(self, records: Sequence[OutputRecord]) -> None:
        """Take ``records``."""
        for record in records:
            self._outputs.add(self._role, json.loads(msgspec.json.encode(record.message)))

    async def flush(self) -> None:
        """Do nothing: what was said is kept in memory."""

    async def close(self) -> None:
        """Do nothing."""


def outputs_in(files: Mapping[Role, Path]) -> Outputs:
    """Return what the JSON lines ``files`` of a run hold."""
    outputs = Outputs()
    for role, path in files.items():
        if path.exists():
            with path.open("rb") as lines:
                for line in lines:
                    outputs.add(role, json.loads(line))
    return outputs
