"""Sequences in data frames of Spark: whole ones, although Spark hands them out in pieces."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamad.errors import InputError
from streamad.messages import Verdict
from streamad.notebook.fitting import load
from streamad.notebook.model import Model

if TYPE_CHECKING:
    import pandas as pd

SCHEMA: Final = (
    "stream string, sequence string, decision string, start_time timestamp, end_time timestamp, n_samples bigint, "
    "score double, p_value double, tail string, detail string, model string, version string"
)
"""The columns of what ``score`` returns, a row for each sequence."""
_COLUMNS: Final = tuple(column.split()[0] for column in SCHEMA.split(", "))
_JOINT: Final = "\x1f"
_UTC: Final = ("UTC", "Etc/UTC", "GMT", "Z")
_models: dict[str, Model] = {}
"""The models of this process by the digest of their files: a task brings its own copy, and each would load it again."""

Scoring = Callable[[Iterable["pd.DataFrame"]], Iterator["pd.DataFrame"]]


def score(config: str | Path | Model, *, model: str | None = None, stream: str | None = None) -> Scoring:
    """Return a function for ``mapInPandas``, with ``SCHEMA``: rows of samples in, a row for each sequence out.

    ``config`` is what ``streamad.load`` takes, or a ``Model``; the frame has its columns of id, time and channels, and
    if ``stream`` names one, that of the stream: ids of two streams are two sequences. ``model`` names one of several.

    A sequence must lie in one partition, its rows one after the other: ``frame.repartition(stream, id)`` and
    ``sortWithinPartitions(stream, id, time)``, as ``judged`` does. One that comes in two pieces of a partition is an
    InputError; of one that is split over two partitions each part would be judged alone, and no function can see that.
    Scores are those of ``Model.verdicts``, whose last digits may depend on how many sequences come together.

    Spark gives a time as the clock of the session shows it, without a zone, so the session's zone must be UTC. Raises
    InputError if it is another, or as ``streamad.load``.
    """
    _check_zone()
    loaded = config if isinstance(config, Model) else load(config, model=model)
    return _Scoring(loaded, stream)


def judged(frame: Any, config: str | Path | Model, *, model: str | None = None, stream: str | None = None) -> Any:
    """Return the verdicts on a Spark ``frame`` of samples, as a Spark frame of ``SCHEMA``.

    It repartitions and sorts the rows, so that each sequence is whole; see ``score``. Raises InputError.
    """
    scoring = score(config, model=model, stream=stream)
    assert isinstance(scoring, _Scoring)
    of, time = scoring.key, scoring.model.columns.time
    kept = [*of, time, *scoring.model.channels]
    if missing := [name for name in kept if name not in frame.columns]:
        raise InputError(f"the frame has no column {', '.join(missing)} (there are: {', '.join(frame.columns)})")
    return frame.select(*kept).repartition(*of).sortWithinPartitions(*of, time).mapInPandas(scoring, SCHEMA)


@dataclass(frozen=True, slots=True)
class _Scoring:
    """The function itself; it can be pickled, with the model in it."""

    model: Model
    stream: str | None

    @property
    def key(self) -> list[str]:
        """The columns that say which sequence a row belongs to."""
        return [*([] if self.stream is None else [self.stream]), self.model.columns.id]

    def __call__(self, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Yield the verdicts on the sequences of one partition. Raises InputError for one that comes in pieces."""
        import pandas as pd  # noqa: PLC0415 - an extra

        held, ended, model = None, set[str](), _of_this_process(self.model)
        for frame in frames:
            rows = frame if held is None else pd.concat([held, frame], ignore_index=True)
            if not len(rows):
                continue
            names = self._names(rows)
            is_first = names.ne(names.shift())
            begins = is_first.to_numpy().nonzero()[0]
            n_whole = int(begins[-1])  # the last sequence may go on in the next frame
            for name in names[is_first][:-1]:
                if name in ended:
                    self._refuse(name)
                ended.add(name)
            held = rows.iloc[n_whole:]
            if names.iloc[n_whole] in ended:
                self._refuse(names.iloc[n_whole])
            if n_whole:
                yield self._verdicts(model, rows.iloc[:n_whole], names.iloc[:n_whole])
        if held is not None:
            yield self._verdicts(model, held, self._names(held))

    def _names(self, rows: pd.DataFrame) -> pd.Series[str]:
        if missing := [name for name in self.key if name not in rows.columns]:
            raise InputError(f"the frame has no column {', '.join(missing)} (there are: {', '.join(rows.columns)})")
        ids = rows[self.model.columns.id]
        if ids.isna().any():
            raise InputError(f"the column {self.model.columns.id!r} has rows without an id: leave them out")
        return ids.astype(str) if self.stream is None else rows[self.stream].astype(str) + _JOINT + ids.astype(str)

    def _verdicts(self, model: Model, rows: pd.DataFrame, names: pd.Series[str]) -> pd.DataFrame:
        import pandas as pd  # noqa: PLC0415 - an extra

        verdicts = model.verdicts(rows.assign(**{self.model.columns.id: names}))
        return pd.DataFrame([self._row(each) for each in verdicts], columns=list(_COLUMNS))

    def _row(self, verdict: Verdict) -> tuple[Any, ...]:
        stream, _, sequence = verdict.sequence.rpartition(_JOINT)
        model = verdict.model
        return (
            stream if self.stream is not None else verdict.stream,
            sequence,
            verdict.decision,
            verdict.start_time.replace(tzinfo=None),
            verdict.end_time.replace(tzinfo=None),
            verdict.n_samples,
            verdict.score,
            verdict.p_value,
            verdict.tail,
            verdict.detail,
            None if model is None else model.name,
            None if model is None else model.version,
        )

    def _refuse(self, name: str) -> None:
        raise InputError(
            f"sequence {name.rpartition(_JOINT)[2]!r} comes in pieces: frame.repartition and sortWithinPartitions by "
            f"{', '.join(self.key)} and {self.model.columns.time} before mapInPandas, or call streamad.spark.judged"
        )


def _of_this_process(model: Model) -> Model:
    """Return ``model``, or a former copy of it that is loaded already."""
    digest = hashlib.sha256()
    for name, content in sorted(model.__getstate__()["_files"].items()):
        digest.update(name.encode() + b"\0" + content)
    digest.update(model.settings.model_dump_json().encode())
    return _models.setdefault(digest.hexdigest(), model)


def _check_zone() -> None:
    """Raise InputError if this process has a Spark session whose times are not those of UTC."""
    sql: Any = sys.modules.get("pyspark.sql")
    session = None if sql is None else sql.SparkSession.getActiveSession()
    if session is not None and (zone := session.conf.get("spark.sql.session.timeZone")) not in _UTC:
        raise InputError(
            f"the session's zone is {zone}, whose clock shows an hour twice or not at all: "
            "spark.conf.set('spark.sql.session.timeZone', 'UTC')"
        )
