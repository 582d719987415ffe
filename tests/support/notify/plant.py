"""A plant whose alerts are files, and what a monitor writes there, without a monitor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from streamad.messages import Message
from streamad.plant import Plant
from tests.support.notify.hook import SECRET, Hook
from tests.support.web.messages import messages_of, reasons_of, warning_of
from tests.support.web.page import plant_in

PLACES = {
    "verdicts": "verdicts.jsonl", "alerts": "alerts.jsonl", "attributions": "attributions.jsonl",
    "windows": "windows.jsonl", "warnings": "warnings.jsonl",
}  # fmt: skip
_AT = {"alert": 1, "attribution": 2, "window": 3}


def id_of(i: int) -> str:
    """Return the id of alert or warning ``i``."""
    return f"{i:032x}"


def message(kind: str, i: int) -> Message:
    """Return the alert, the attribution, the window or the warning of sequence ``i``, or the warning's ``reasons``."""
    warning = warning_of(i, warning_id=id_of(i))
    if kind in ("warning", "reasons"):
        return warning if kind == "warning" else reasons_of(warning)
    return messages_of(i)[_AT[kind]]


def write(folder: Path, kind: str, numbers: Sequence[int]) -> None:
    """Append messages to their file, or to another one (``warning in alerts``)."""
    kind, _, place = kind.partition(" in ")
    with (folder / PLACES[place or f"{kind}s"]).open("ab") as file:
        file.writelines(msgspec.json.encode(message(kind, i)) + b"\n" for i in numbers)


def receiver(hook: Hook, name: str = "first", **more: Any) -> dict[str, Any]:
    """Return the settings of a receiver at ``hook`` that begins with the earliest alert."""
    return {"name": name, "url": hook.url, "secret": {"file": "notify.secret"}, "start": "earliest", **more}


def notified_plant(folder: Path, *receivers: dict[str, Any], **more: Any) -> Plant:
    """Return a plant with these receivers, and its secret beside its config."""
    (folder / "notify.secret").write_text(f"{SECRET}\n")
    return plant_in(folder, notify={"receivers": list(receivers), **more})
