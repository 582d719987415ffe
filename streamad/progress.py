"""Progress of a partition: what is done, what must be read again, and the clocks that make rereading exact."""

from __future__ import annotations

import msgspec


class ForcedEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What ended something of a stream from outside, when all records below ``offset`` were read and no other one.

    The wall clock, which then stood for ``clock_us`` on the partition's clock; or, where that is None, short memory,
    which ended the sequence whose id has the hash ``ended`` ("": the one without id; None: what waited for late-comers
    was released, and nothing was left open).
    """

    offset: int
    clock_us: int | None = None
    ended: str | None = None


class StreamProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One stream's share of the progress.

    Every sample of the stream below ``done_below`` (an offset) has its verdict or was late; the clocks are those from
    before that offset. ``closed`` maps the hash of a closed sequence id to the partition clock at its end, so that its
    late samples are recognised; ``closed_through_us`` does so for sequences without ids. ``partial`` says that the
    beginning of the stream's next sequence may have gone unseen. ``starts`` (relative times) maps the hash of a
    sequence id to the event time of its second 0 and the partition clock when it was first seen. ``forced`` holds what
    came from outside since ``done_below``, in that order: rereading repeats it at the same places.
    """

    done_below: int
    max_time_us: int | None = None
    floor_us: int | None = None
    last_record_us: int | None = None
    closed: dict[str, int] = {}
    closed_through_us: int | None = None
    partial: bool = False
    starts: dict[str, tuple[int, int]] = {}
    forced: tuple[ForcedEnd, ...] = ()


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """All that a restart needs to know of a partition.

    ``next_offset`` (N) is the next offset to read; ``low_watermark`` (LWM) the lowest offset holding a sample whose
    sequence has no committed verdict, else N; ``clock_us`` the partition's record clock as it was before LWM, and
    ``low_watermark_us`` with the record at LWM, whose age it tells (without one the same as ``clock_us``). Streams
    first seen while ``clock_us`` is at most ``partial_until_us`` may have begun unseen; ``unseen`` says that they may
    have, and that no record has told yet until when.
    """

    partition: str
    next_offset: int
    low_watermark: int
    clock_us: int | None = None
    low_watermark_us: int | None = None
    partial_until_us: int | None = None
    streams: dict[str, StreamProgress] = {}
    ended: bool = False
    unseen: bool = False


class ProgressUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What changed since the last commit: the partition's head and the streams that changed (None: forgotten)."""

    partition: str
    next_offset: int
    low_watermark: int
    clock_us: int | None = None
    low_watermark_us: int | None = None
    partial_until_us: int | None = None
    streams: dict[str, StreamProgress | None] = {}
    ended: bool = False
    unseen: bool = False


def merge(progress: Progress | None, update: ProgressUpdate) -> Progress:
    """Return ``progress`` with ``update`` applied, as reading the compacted progress topic to its end would."""
    streams = dict(progress.streams) if progress is not None else {}
    for name, stream in update.streams.items():
        if stream is None:
            streams.pop(name, None)
        else:
            streams[name] = stream
    return Progress(
        partition=update.partition,
        next_offset=update.next_offset,
        low_watermark=update.low_watermark,
        clock_us=update.clock_us,
        low_watermark_us=update.low_watermark_us,
        partial_until_us=update.partial_until_us,
        streams=streams,
        ended=update.ended,
        unseen=update.unseen,
    )


def after_gap(progress: Progress, begin: int) -> Progress:
    """Return ``progress`` as of going on at ``begin``, because what lies between LWM and there is gone.

    Streams with samples that may have been lost, and all not known yet, begin anew with a partial sequence.
    """
    replace = msgspec.structs.replace
    streams = {
        name: stream if stream.done_below >= begin else replace(stream, partial=True, done_below=begin, forced=())
        for name, stream in progress.streams.items()
    }
    return replace(
        progress,
        next_offset=max(progress.next_offset, begin),
        low_watermark=begin,
        low_watermark_us=None,
        partial_until_us=None,
        streams=streams,
        unseen=True,
    )
