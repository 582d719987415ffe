"""What a command tells of the marks that it has written."""

from __future__ import annotations

from collections.abc import Sequence

from streamad.commands.shared.console import count, err, note, out, print_json
from streamad.outputs.marks.writing import Marked
from streamad.outputs.stored import time_text
from streamad.safe_text import one_line

_SHOWN = 20


def print_marked(marked: Sequence[Marked], *, as_json: bool) -> None:
    """Print the marks, and notes on those without a stored window, without effect or with a later mark."""
    unknown = [one for one in marked if one.looked and one.found is None]
    overridden = [one for one in marked if one.overridden_by is not None]
    idle = [one for one in marked if one.takes_back_nothing]
    if as_json:
        print_json(
            {
                "kept": len(marked),
                "place": marked[0].place if marked else None,
                "without_window": [one.feedback.alert_id for one in unknown],
                "overridden": [one.feedback.alert_id for one in overridden],
                "nothing_to_withdraw": [one.feedback.alert_id for one in idle],
            }
        )
        return
    for one in marked[:_SHOWN]:
        out.print(f"{one.feedback.judgement.replace('_', ' ')}: {_name(one)}")
    if len(marked) > _SHOWN:
        out.print(f"... and {len(marked) - _SHOWN} more")
    out.print(_kept(marked))
    _print_notes([_without_window(one) for one in unknown if not one.takes_back_nothing], "are not stored either")
    _print_notes([_overridden(one) for one in overridden], "have a later mark")
    _print_notes([_idle(one) for one in idle], "have no mark either")


def _kept(marked: Sequence[Marked]) -> str:
    """Return where the marks are, and what comes of them."""
    place, n = marked[0].place, len(marked)
    if not marked[0].learns:
        return f"kept in {place}: {count(n, 'mark')} for reports, the page, and training with a section learning"
    if n == 1:
        return f"kept in {place}: it counts once the learner has read it"
    return f"kept in {place}: {n} marks, which count once the learner has read them"


def _print_notes(notes: Sequence[str], what: str) -> None:
    for each in notes[:_SHOWN]:
        err.print(note(each))
    if len(notes) > _SHOWN:
        err.print(note(f"{len(notes) - _SHOWN} more {what}"))


def _without_window(one: Marked) -> str:
    return (
        f"no sequence {one.feedback.alert_id} is stored (any more): the mark counts if it comes, but now there is no "
        "window to learn from"
    )


def _idle(one: Marked) -> str:
    return (
        f"{one.feedback.alert_id} has no mark in the store: there is none to take back (it also takes back one that "
        "waits to be read)"
    )


def _overridden(one: Marked) -> str:
    mark = one.overridden_by
    assert mark is not None, "chosen by it"
    by = f", by {one_line(mark.author)}" if mark.author else ""
    later = mark.judgement.replace("_", " ")
    return f"{one.feedback.alert_id} has a later mark, which counts: {later} ({time_text(mark.at_us)} UTC{by})"


def _name(one: Marked) -> str:
    if one.found is None:
        return one.feedback.alert_id if one.name is None else " ".join(one.name)
    sequence = one.found.sequence
    judged = "not judged, there was no model" if sequence.decision == "learning" else f"judged {sequence.decision}"
    return (
        f"{sequence.stream} {sequence.sequence}, ended {time_text(sequence.time_us)} UTC, {judged} "
        f"({one.found.share} of model {one.found.model})"
    )
