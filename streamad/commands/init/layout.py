"""The fields of a plant's messages that streamad needs, as init has found them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from streamad.commands.init.facts.marks import PLAIN, Marks
from streamad.commands.init.rules.boundaries import State, Words
from streamad.commands.init.rules.ids import place_of_missing
from streamad.commands.init.rules.patterns import OF_PATTERN
from streamad.commands.init.rules.readings import QualityField
from streamad.commands.init.rules.time_field import TimeField
from streamad.settings.template import ChannelLine

_FEW_WITHOUT = 0.01
_MANY_WITHOUT = 0.2
Form = Literal["own", "flat", "object", "per_channel", "chunked"]


@dataclass(slots=True)
class Layout:
    """The fields of a plant's messages that streamad needs; ``notes`` lists the guesses, in whole phrases."""

    form: Form
    time: TimeField
    channels: list[ChannelLine]
    stream: str | None = None
    sequence: tuple[str, ...] = ()
    """The fields that name the sequence together."""
    end: str | None = None
    values: str | None = None
    each: str | None = None
    """The list of which each element is a reading or a sample."""
    channel: str | None = None
    value: str | None = None
    as_text: tuple[str, ...] = ()
    left_out: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pattern: tuple[str, str] | None = None
    """The field that names stream and channel, and its parts."""
    registry: dict[str, Any] | None = None
    """``decode.registry``, of messages that a serializer has framed."""
    wire: Literal["influx"] | None = None
    """The wire format of records that are neither JSON nor msgpack."""
    nested: tuple[str, ...] = ()
    """The fields that hold their content as text."""
    missing: tuple[str, ...] = ()
    """Texts in place of readings that mean missing."""
    quality: QualityField | None = None
    """The quality of all readings of a message."""
    marks: Marks = PLAIN
    """How texts write numbers."""
    ids_from: Literal["file", "folder"] | None = None
    """Every file is one sequence, and its name, or that of its folder, is the id."""
    restarts: bool = False
    """A sequence begins where the time begins anew."""
    words: Words | None = None
    """The field of events whose words begin and end batches."""
    state: State | None = None
    """The field whose state says when a batch runs."""
    id_tag: str | None = None
    """One channel per message: the tag whose readings name the sequence."""
    skips_without_id: bool = False
    """Messages without an id lie between sequences and are left out."""
    zone_is_given: bool = False
    """``time.zone`` was named by the user."""
    remarks: list[str] = field(default_factory=list)
    """Remarks for the user that the config does not hold."""
    remedy: str | None = None
    """What the user can give, such as an option, if the config would lose many samples."""

    @property
    def stream_title(self) -> str | None:
        """Return the field of the stream for people; None if there is none."""
        if self.pattern is not None and self.stream == OF_PATTERN:
            return f"{self.pattern[0]}, as in {self.pattern[1]}"
        return self.stream

    @property
    def sequence_title(self) -> str | None:
        """Return the fields of the sequence id, or its tag, for people; None if there is none."""
        return " and ".join(self.sequence) or self.id_tag

    @property
    def has_ids(self) -> bool:
        """Return whether messages or files name their sequence."""
        return bool(self.sequence) or self.id_tag is not None or self.ids_from is not None

    @property
    def is_relative(self) -> bool:
        """Return whether times count from the start of each sequence."""
        return self.time.counts and (self.has_ids or self.restarts or self.time.is_elapsed)


def note_without_id(
    layout: Layout, n_messages: int, sequences: Mapping[int, object], streams: Mapping[int, object]
) -> None:
    """Note messages, or readings of the tag, without a sequence id, by row; those in runs between two are left out."""
    without, name = n_messages - len(sequences), layout.sequence_title
    of_all = f"{without} of {n_messages}"
    lack = f"{of_all} messages have no {name}" if layout.id_tag is None else f"{of_all} readings of {name} are empty"
    place = place_of_missing(n_messages, sequences, streams) if without else "outside"
    if place == "between":
        layout.skips_without_id = True
        layout.notes.append(
            f"{lack}, in runs between two of them, as in pauses: they are "
            "left out (sequences.without_id: skip); if they are sequences, too, set keep"
        )
    elif place == "inside" and without <= _MANY_WITHOUT * n_messages:
        layout.skips_without_id = True
        layout.notes.append(
            f"{lack}, some of them inside a sequence, which they would end: "
            "they are left out (sequences.without_id: skip)"
        )
    elif without > _FEW_WITHOUT * n_messages:
        layout.notes.append(
            f"{lack}: they become sequences of their own, named by their "
            "start; if they are no sequences, set sequences.without_id: skip"
        )
