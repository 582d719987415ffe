"""Texts about records and sequences that could not be used, and about a config that does not fit the recordings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from streamad.commands.shared.console import count, err, note
from streamad.errors import SourceError
from streamad.ingest.dead_letters import BAD_VALUE
from streamad.language import percent
from streamad.telemetry.metrics import Counters

MOST_LOST = 0.05
"""A larger share of lost samples is no accident: the config does not fit."""
NO_BATCH = "no sample lies in a sequence: streamad check says why"
NO_RECORD = "no record was read: is the path or URL right, and the range of --since and --until?"
DISPLACED = "displaced by another value of their channel and time"
FINER_TIMES = (
    "values of equal times replace each other: name a finer time, also one beside it (decode.fields.time: [date, ms]), "
    "the field that tells streams or sequences apart (decode.fields.stream, decode.fields.sequence), or, where times "
    "begin anew, sequences.end: [restart]; rows of a file can be read as evenly spaced (decode.time: row)"
)
LATER = (
    "raise sequences.allowed_lateness, sort recordings by time (source.options.sort), or name the field that tells "
    "streams apart (decode.fields.stream)"
)
TAGS = "the tag that decides (sequences.while, decode.fields.sequence)"
MISSING = "name what means missing in decode.missing or channels[].missing, what means a number in channels[].values"
READABLE = "see streamad check: decode and channels do not fit the messages"
UNREGISTERED = "the registry lacks schemas that messages name: register them, or correct decode.registry.url"
_CHANNELS_SHOWN = 5
_REASONS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Losses:
    """Samples that came too late or replaced another value, and records that were refused.

    A refused record counts as one sample: more is not known of it.
    """

    n_all: int
    n_late: int
    n_displaced: int
    n_refused: int

    @classmethod
    def of(cls, counters: Counters | Mapping[str, Any]) -> Losses:
        """Return the losses that ``counters`` count."""
        found = counters.as_dict() if isinstance(counters, Counters) else counters
        letters = found["dead_letters"]
        refused = sum(n for kind, n in letters.items() if kind not in (BAD_VALUE, "time_jump"))
        jumps = letters.get("time_jump", 0)  # counted as samples, too
        displaced = found.get("displaced", 0)
        return cls(found["samples"] + refused, found["late_samples"], displaced, refused + jumps)

    @property
    def share(self) -> float:
        """Return the share of samples that are lost."""
        return (self.n_late + self.n_displaced + self.n_refused) / max(1, self.n_all)

    def is_much(self, n: int) -> bool:
        """Return whether ``n`` samples are more than an accident."""
        return n > MOST_LOST * self.n_all

    @property
    def are_many(self) -> bool:
        """Return whether too many are lost to go on."""
        return self.share > MOST_LOST

    @property
    def text(self) -> str:
        """Return the share and its parts, for people: ``37 % of 8792 samples (3253 too late)``."""
        parts = [f"{self.n_late} too late"] * bool(self.n_late)
        parts += [f"{self.n_displaced} {DISPLACED}"] * bool(self.n_displaced)
        parts += [f"{count(self.n_refused, 'record')} refused"] * bool(self.n_refused)
        return f"{percent(self.share)} of {self.n_all} samples ({', '.join(parts)})"


def bad_values_text(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Return the counts of values that cannot be used for people: the channels with most of them, and the reasons."""
    ranked = sorted(((name, of) for name, of in counts.items() if of), key=lambda item: -sum(item[1].values()))
    shown = [f"{sum(of.values())} of {name} ({', '.join(of)})" for name, of in ranked[:_CHANNELS_SHOWN]]
    rest = sum(sum(of.values()) for _, of in ranked[_CHANNELS_SHOWN:])
    more = [f"{rest} of {len(ranked) - _CHANNELS_SHOWN} more channels"] if rest else []
    return f"{', '.join([*shown, *more])}: missing"


def unreadable_text(dead_letters: Mapping[str, int]) -> str:
    """Return the counts of records of which nothing was read, by kind; "" if there are none."""
    return ", ".join(f"{count} {kind}" for kind, count in dead_letters.items() if kind != BAD_VALUE)


def unscorable_text(reasons: Mapping[str, int]) -> str:
    """Return the counts of unscorable sequences by reason for people, the most frequent first; "" if there are none."""
    ranked = sorted(reasons.items(), key=lambda item: -item[1])
    rest = sum(n for _, n in ranked[_REASONS_SHOWN:])
    shown = [f"{n} {why}" for why, n in ranked[:_REASONS_SHOWN]]
    return "; ".join([*shown, f"{rest} for other reasons"] if rest else shown)


def check_usable(
    counters: Mapping[str, Any], no_record: str = NO_RECORD, *, given: str | None = None, may_be_empty: bool = True
) -> None:
    """Raise SourceError if records were read and none holds a sample, or if there is none.

    ``may_be_empty``: then the note ``no_record`` is printed instead. ``given``: the URL of what was read instead of the
    config's source.
    """
    n, kinds = counters["records"], unreadable_text(counters["dead_letters"])
    if not n and not kinds:
        if not may_be_empty:
            raise SourceError(no_record)
        err.print(note(no_record))
    if counters["samples"] or not (kinds or counters["ignored"] or counters["without_id"]):
        return
    parts = [f"{kinds}: unreadable"] if kinds else []
    if counters["ignored"]:
        parts.append(f"{counters['ignored']} hold no channel of the plant")
    if counters.get("without_id"):
        parts.append(f"{count(counters['without_id'], 'sample')} without a sequence id: sequences.without_id is skip")
    of = f" --from {shlex.quote(given)}" if given else ""
    raise SourceError(f"none of {n} records is usable ({'; '.join(parts)}): see streamad check{of} --config FILE")


class Loss(NamedTuple):
    """One kind of loss: its name, how much was lost, for people, and the remedy, "" for a few accidental ones."""

    what: str
    said: str
    remedy: str = ""

    @property
    def text(self) -> str:
        """Return what is said, and the remedy."""
        return f"{self.said}; {self.remedy}" if self.remedy else self.said


def lost(counters: Mapping[str, Any]) -> Iterator[Loss]:
    """Yield what became of records, samples and values that are in no sequence, with the remedy above 5 %."""
    losses = Losses.of(counters)
    if letters := counters["dead_letters"]:
        kinds = ", ".join(f"{n} {kind}" for kind, n in letters.items())
        likely = UNREGISTERED if max(letters, key=letters.__getitem__) == "unknown_schema" else READABLE
        remedy = likely if losses.is_much(losses.n_refused) else ""
        yield Loss("dead letters", f"{sum(letters.values())} ({kinds})", remedy)
    for what, n, remedy in (("late samples", losses.n_late, LATER), ("displaced", losses.n_displaced, FINER_TIMES)):
        if losses.is_much(n):
            yield Loss(what, f"{n} of {count(losses.n_all, 'sample')} are lost", remedy)
        elif n:
            yield Loss(what, str(n))
    for what, name, of in (
        ("without an id", "without_id", "sample"),
        ("without a channel", "ignored", "record"),
        ("tombstones", "tombstones", "record"),
    ):
        if left_out := counters.get(name):
            yield Loss(what, f"{count(left_out, of)} left out")
    yield from _odd(counters)
    if held := counters.get("held"):
        yield Loss("open", f"{count(held, 'sequence')} held: the next run may bring the rest")
    if values := counters.get("bad_values"):
        yield Loss("bad values", bad_values_text(values), MISSING if _are_many(values, counters["samples"]) else "")


def _odd(counters: Mapping[str, Any]) -> Iterator[Loss]:
    """Yield what lies in no sequence, and words and readings of tags that say nothing or come late."""
    if outside := counters.get("outside"):
        before = counters.get("before_tag")
        remedy = f"{before} of them before the first reading of {TAGS}" if before else ""
        if not remedy and outside == counters["samples"]:
            remedy = NO_BATCH
        yield Loss("in no sequence", count(outside, "sample"), remedy)
    if ends := counters.get("unbegun_ends"):
        yield Loss("ends without a beginning", str(ends), "see decode.fields.begin")
    if late := counters.get("late_boundaries"):
        yield Loss("late words and tags", f"{late} took effect later than their time, or not", LATER)


def _are_many(values: Mapping[str, Mapping[str, int]], n_samples: int) -> bool:
    """Return whether too many values of a channel cannot be read; a bad quality is one that the plant has given."""
    unread = (sum(n for reason, n in of.items() if reason != "quality") for of in values.values())
    return max(unread) > MOST_LOST * n_samples
