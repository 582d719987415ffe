"""How a file of rows is laid out: which line names the columns, which one their units, and where the rows begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The layout of a table of text, and why it was taken for that; lines count from 1.

    ``header`` is None if no line was found that names the columns. If ``is_sure``, there is none; else that is not
    known, or (with a ``header``) another line may name them, too: ``why`` says which. ``units`` has an item a column,
    None where no unit stands; it is empty without a line of units. ``options`` are what the source needs in order to
    read the table so, beyond its defaults.
    """

    header: int | None
    first_row: int | None
    names: tuple[str, ...]
    delimiter: str
    why: str
    is_sure: bool
    units: tuple[str | None, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class TableSource(Protocol):
    """A source that may read tables of text."""

    def table_layout(self) -> TableLayout | None:
        """Return how its first table looks to be laid out, None if it has none. Raises SourceError."""
