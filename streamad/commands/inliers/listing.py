"""Reports on a model's inlier store, for people and for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from streamad.commands.shared.console import err, notice, out, print_table, styled
from streamad.judge.verdicts import p_text
from streamad.learn.store.records import Mark
from streamad.messages import SHARES, Share
from streamad.outputs.stored import StoreView, learning_of, open_store, time_text
from streamad.plant import Plant
from streamad.safe_text import one_line, visible_name
from streamad.types import from_us


class StoreReport:
    """The content of one model's store."""

    def __init__(self, plant: Plant, model: str) -> None:
        self.model = model
        store = open_store(plant, model)
        self.stored = [StoreView(model, share, sequence) for share in SHARES for sequence in store.read(share)]
        self.marks = store.marks()
        self.problems = store.problems
        self.limit = learning_of(plant).limit

    def as_dict(self, *, each: bool) -> dict[str, Any]:
        """Return the report for machines."""
        ids = {one.sequence.id for one in self.stored}
        return {
            "model": self.model,
            "shares": {share: self._share(share) for share in SHARES},
            "marks": dict(Counter(mark.judgement for mark in self.marks.values())),
            "marks_without_window": len(self.marks.keys() - ids),
            "problems": self.problems,
            **({"sequences": [_sequence(one, self.marks) for one in self.stored]} if each else {}),
        }

    def _share(self, share: Share) -> dict[str, Any]:
        everything = [one.sequence for one in self.stored if one.share == share]
        found = [one for one in everything if not one.only_marked]
        return {
            "count": len(found),
            "only_marked": len(everything) - len(found),
            "at_most": self.limit(share),
            "first_time": from_us(found[0].time_us) if found else None,
            "last_time": from_us(found[-1].time_us) if found else None,
            "versions": dict(sorted(Counter(one.model_version or "none" for one in found).items())),
            "decisions": dict(sorted(Counter(one.decision for one in found).items())),
        }

    def print(self, *, each: bool) -> None:
        """Print the report for people."""
        out.print(styled("model ", (self.model, "bold")))
        table = Table("share", "sequences", "at most", "from (UTC)", "to", "judged by", "decisions", box=None)
        for share in SHARES:
            found = self._share(share)
            table.add_row(
                share,
                str(found["count"]) + (f" + {found['only_marked']} marked" if found["only_marked"] else ""),
                str(found["at_most"]),
                "" if found["first_time"] is None else f"{found['first_time']:%Y-%m-%d %H:%M:%S}",
                "" if found["last_time"] is None else f"{found['last_time']:%Y-%m-%d %H:%M:%S}",
                ", ".join(f"{name.replace('none', 'no model')} ({n})" for name, n in found["versions"].items()),
                counted(found["decisions"]),
            )
        print_table(table)
        if each:
            print_table(_sequences(self.stored, self.marks), whole=("id", "stream", "sequence"))
        if self.marks:
            gone = len(self.marks.keys() - {one.sequence.id for one in self.stored})
            words = counted(Counter(sorted(mark.judgement.replace("_", " ") for mark in self.marks.values())))
            out.print(f"marks: {words}" + (f"; {gone} of them without a stored window" if gone else ""))
        for problem in self.problems:
            err.print(notice("not used", f" {problem}"))


def counted(counts: Mapping[str, int]) -> str:
    """Return ``3 normal, 1 anomalous``."""
    return ", ".join(f"{n} {name}" for name, n in counts.items())


def _sequences(stored: Sequence[StoreView], marks: Mapping[str, Mark]) -> Table:
    table = Table("id", "stream", "sequence", "ended (UTC)", "share", "decision", "p", "mark", box=None)
    for one in sorted(stored, key=lambda one: one.sequence.time_us):
        sequence = one.sequence
        table.add_row(
            sequence.id,
            visible_name(sequence.stream),
            visible_name(sequence.sequence),
            time_text(sequence.time_us),
            one.share,
            sequence.decision,
            "" if sequence.p_value is None else p_text(sequence.p_value),
            _said(marks[sequence.id]) if sequence.id in marks else "",
        )
    return table


def _said(mark: Mark) -> str:
    """Return ``false alarm by Kim (claimed)``."""
    return mark.judgement.replace("_", " ") + (f" by {one_line(mark.author)}" if mark.author else "")


def _sequence(one: StoreView, marks: Mapping[str, Mark]) -> dict[str, Any]:
    sequence = one.sequence
    return {
        "id": sequence.id,
        "stream": sequence.stream,
        "sequence": sequence.sequence,
        "time": from_us(sequence.time_us),
        "share": one.share,
        "decision": sequence.decision,
        "score": sequence.score,
        "p_value": sequence.p_value,
        "version": sequence.model_version,
        "only_marked": sequence.only_marked,
        "mark": marks.get(sequence.id),
    }
