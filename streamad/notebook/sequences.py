"""Arrays, lists of arrays and data frames as sequences: what ``fit`` and ``Model`` take as X.

Shapes: N sequences, C channels, T points (of one sequence, or the most of all).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import narwhals as nw
import numpy as np
import numpy.typing as npt
from narwhals.exceptions import DuplicateError

from streamad.errors import InputError, some_of
from streamad.notebook.arguments import items
from streamad.types import MAX_TIME_US, FinishedSequence, FloatArray, IntArray, Position

STREAM: Final = "array"
"""The stream of sequences that come without one."""
_STEP_US = 1_000_000
_KINDS = "fiub"
_MOST_NAMED = 8
_Numbers = npt.NDArray[np.floating]
_SHAPES = (
    "X is an array [sequences, channels, points], a list of arrays [channels, points], or a data frame with a row for "
    "each point"
)


@dataclass(frozen=True, slots=True)
class FrameColumns:
    """The columns of a data frame with a row for each point: the sequence's id, the time, and the channels.

    ``channels`` None: all other columns. Times are datetimes (without a zone: UTC) or seconds.
    """

    id: str = "id"
    time: str = "time"
    channels: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """The sequences of X in its order, and the names of their channels; () if X has none."""

    items: tuple[FinishedSequence, ...]
    channels: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[FinishedSequence]:
        return iter(self.items)


def sequences_of(X: Any, columns: FrameColumns, *, ids: Iterable[object] | None = None) -> Sequences:
    """Return the sequences of ``X``; see ``streamad.fit`` for its forms.

    ``ids`` names the sequences of arrays (default: 0, 1, ...); a frame has its own. Points of arrays are one second
    apart. NaN is a missing value; points at the end without any value are padding, and are left out.

    Raises InputError if ``X`` has another form, or a value that is no number.
    """
    if isinstance(X, Sequences):
        return X
    if _is_frame(X):
        if ids is not None:
            raise InputError(f"ids are for arrays: a data frame has its own in the column {columns.id!r}")
        return _of_frame(X, columns)
    arrays = _arrays(X)
    if ids is None:
        names = [str(number) for number in range(len(arrays))]
    else:
        names = [_name(each) for each in items("ids", ids, "a list of an id for each sequence")]
    if len(names) != len(arrays):
        raise InputError(f"there are {len(arrays)} sequences and {len(names)} ids")
    if len(set(names)) < len(names):
        twice = sorted(name for name, n in Counter(names).items() if n > 1)
        raise InputError(f"ids name two sequences: {some_of(twice)}")
    widths = {array.shape[0] for array in arrays}
    if len(widths) > 1:
        raise InputError(f"the sequences have different numbers of channels: {sorted(widths)}; {_SHAPES}")
    return Sequences(
        tuple(_of_array(array, name, place) for place, (array, name) in enumerate(zip(arrays, names, strict=True)))
    )


def _is_frame(X: Any) -> bool:
    return hasattr(type(X), "columns")  # of the type: a lazy frame's own may be expensive


def _name(sequence_id: object) -> str:
    """Return the id as text. Raises InputError for one that no message can hold."""
    name = str(sequence_id)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the id {name!r} holds half a character: write it without") from error
    return name


def _arrays(X: Any) -> list[_Numbers]:
    """Return each sequence [C, T] as numbers."""
    if isinstance(X, str | os.PathLike):
        raise InputError(
            f"X is the text {os.fspath(X)!r}: read a file before, such as pandas.read_csv({os.fspath(X)!r})"
        )
    if isinstance(X, str | bytes) or not isinstance(X, Sequence | np.ndarray):
        X = _as_array(X, "X")
    if isinstance(X, np.ndarray) and X.dtype != np.object_:
        if X.ndim == 3:
            return [_numbers(each, f"X[{place}]") for place, each in enumerate(X)]
        one = "one sequence is X[None], " if X.ndim == 2 else ""
        univariate = "sequences of one channel are X[:, None, :]" if X.ndim == 2 else "such a series is one sequence"
        raise InputError(f"X has {X.ndim} dimensions: {_SHAPES} ({one}{univariate})")
    if isinstance(X, np.ndarray) and not X.ndim:
        raise InputError(f"X is no array of numbers: {_SHAPES}")
    found = [_numbers(each, f"X[{place}]") for place, each in enumerate(X)]
    for place, each in enumerate(found):
        if each.ndim != 2:
            raise InputError(f"X[{place}] has {each.ndim} dimensions: {_SHAPES}")
    return found


def _as_array(values: Any, name: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # the last: a tensor with a gradient
        raise InputError(f"{name} is no array of numbers: {_SHAPES}") from error


def _numbers(values: Any, name: str) -> _Numbers:
    if _is_frame(values):
        raise InputError(
            f"{name} is a data frame, and its axes may be either way round: join all in one frame with a column of "
            "ids, or give arrays [channels, points], such as [frame.to_numpy().T for frame in X]"
        )
    array = (
        np.ma.filled(values.astype(np.float64), np.nan)
        if isinstance(values, np.ma.MaskedArray)
        else _as_array(values, name)
    )
    if array.dtype.kind not in _KINDS:
        what = "None" if array.dtype == np.object_ and None in array.ravel().tolist() else str(array.dtype)
        raise InputError(f"{name} holds {what}, not numbers (NaN is a missing value): {_SHAPES}")
    return array.astype(np.float64, copy=False)


def _of_array(values: _Numbers, name: str, place: int) -> FinishedSequence:
    return _sequence(STREAM, name, np.arange(values.shape[1], dtype=np.int64) * _STEP_US, values.T, place)


def _sequence(stream: str, name: str, times_us: IntArray, values: _Numbers, place: int) -> FinishedSequence:
    """Return the sequence of ``values`` [T, C] without the points at its end that have none, but with one at least."""
    if not len(values):
        raise InputError(f"sequence {name!r} has no point")
    if np.isinf(values).any():
        raise InputError(f"sequence {name!r} has infinite values: leave them out, or write NaN for missing")
    has = np.flatnonzero(np.isfinite(values).any(axis=1))
    n = int(has[-1]) + 1 if len(has) else 1
    with np.errstate(over="ignore"):
        kept: FloatArray = np.ascontiguousarray(values[:n], dtype=np.float32)
    if np.isinf(kept).any():
        raise InputError(f"sequence {name!r} has values too large for 32-bit numbers")
    return FinishedSequence(stream, name, "end_of_input", times_us[:n], kept, Position(place, 0))


def _of_frame(X: Any, columns: FrameColumns) -> Sequences:
    """Return the sequences of a frame in the order in which their ids first come, each by rising time."""
    try:
        frame = nw.from_native(X, eager_only=True)
    except DuplicateError as error:
        raise InputError("two columns of the data frame have the same name: rename or drop one") from error
    except TypeError as error:
        raise InputError(
            f"X is {type(X).__name__}, no eager data frame (pandas, polars, pyarrow): {_SHAPES}"
        ) from error
    there = frame.columns
    if other := [name for name in there if not isinstance(name, str)]:
        raise InputError(f"the column {other[0]!r} has no text as its name: give it one")
    channels = columns.channels or tuple(name for name in there if name not in (columns.id, columns.time))
    wanted = (columns.id, columns.time, *channels)
    if missing := [name for name in wanted if name not in there]:
        raise InputError(
            f"the data frame has no column {some_of(missing)} (there are: {some_of(there)}): rename it, or name the "
            "columns in streamad.fit with id=, time= and channels=, in streamad.load with id= and time="
        )
    if not channels:
        raise InputError(f"the data frame has no column beside {columns.id!r} and {columns.time!r}: no channel")
    if texts := [name for name in channels if not _holds_numbers(frame[name])]:
        numbers = [name for name in channels if name not in texts][:_MOST_NAMED]
        named = f"channels={numbers!r}" if numbers else "channels="
        raise InputError(
            f"the column {texts[0]!r} holds {frame[texts[0]].dtype}, not numbers: name the channels with {named}"
        )
    values = np.stack([_numbers_of(frame[name]) for name in channels], axis=1)
    times_us = _times_us(frame[columns.time], columns.time)
    ids = frame[columns.id]
    if ids.is_null().any():
        raise InputError(f"the column {columns.id!r} has rows without an id: leave them out")
    places: dict[str, int] = {}
    of = np.array([places.setdefault(str(each), len(places)) for each in ids.to_list()], dtype=np.int64)
    order = np.lexsort((times_us, of))
    of_each = np.split(order, np.flatnonzero(np.diff(of[order])) + 1)
    items = []
    for (name, place), rows in zip(places.items(), of_each, strict=False):
        times = times_us[rows]
        if (times[1:] == times[:-1]).any():
            raise InputError(f"sequence {name!r} has two rows of one time: keep one row for each time and id")
        items.append(_sequence(STREAM, _name(name), times, values[rows], place))
    return Sequences(tuple(items), channels)


def _holds_numbers(series: nw.Series[Any]) -> bool:
    return series.dtype.is_numeric() or series.dtype == nw.Boolean


def _numbers_of(series: nw.Series[Any]) -> _Numbers:
    return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _times_us(series: nw.Series[Any], name: str) -> IntArray:
    """Return the times in microseconds since the epoch."""
    if series.is_null().any():
        raise InputError(f"the column {name!r} has rows without a time: leave them out")
    if series.dtype == nw.Date:
        series = series.cast(nw.Datetime("us"))
    if series.dtype == nw.Datetime:
        times: IntArray = np.asarray(series.dt.timestamp("us").to_numpy(), dtype=np.int64)
        if not ((times > -MAX_TIME_US) & (times < MAX_TIME_US)).all():
            raise InputError(f"the column {name!r} holds times outside the years that there are")
    elif series.dtype == nw.Duration:
        times = np.asarray(series.dt.total_microseconds().to_numpy(), dtype=np.int64)
    elif series.dtype.is_numeric():
        seconds = np.asarray(series.to_numpy(), dtype=np.float64)
        if not (np.abs(seconds) < MAX_TIME_US / 1e6).all():
            raise InputError(f"the column {name!r} holds numbers that are no seconds: write datetimes, or seconds")
        times = np.rint(seconds * 1e6).astype(np.int64)
    else:
        raise InputError(
            f"the column {name!r} holds {series.dtype}: times are datetimes (such as pandas.to_datetime makes), dates, "
            "durations, or seconds as numbers"
        )
    return times
