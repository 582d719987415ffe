"""The file of expectations (``acceptance.yaml``): data sets, limits, and the rates that are to be shown on them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, ValidationError, model_validator

from streamad.errors import ConfigError, Problem
from streamad.plugins import Loc
from streamad.settings.fields import ConfigSection, Duration, Url
from streamad.settings.yaml_file import check_schema, line_of, read_yaml, validation_problems
from streamad.system.opening import NotRegularError, open_regular
from streamad.validation.deciding import Basis

What: TypeAlias = Literal["false_alarms", "detection", "false_warnings", "warned"]
_MOST = ("false_alarms", "false_warnings")
_WARNINGS = ("false_warnings", "warned")
_NO_ENVIRONMENT = "STREAMAD_NO_KEY_OF_ACCEPTANCE__"
_MOST_LISTED = 200
_LABEL_KEYS = ("normal", "label_id", "label_column")

DataName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]
Text = Annotated[str, Field(min_length=1, max_length=200)]
Share = Annotated[float, Field(ge=0, le=1)]


class DataSet(ConfigSection):
    """Recordings that the monitor has to judge, and what is true of their sequences."""

    name: DataName
    recordings: Url
    """Path or URL of files, relative to the folder of this file."""
    label: Text | None = None
    """Label of all sequences, if they have the same: normal, or a kind of fault."""
    labels: str | None = None
    """CSV file of labels, relative to the folder of this file, or source: the recordings have them (npz)."""
    normal: tuple[Annotated[str, Field(max_length=200)], ...] | None = None
    """With labels: those that mean normal ("": an empty cell); without it 0 and 1 or common words decide."""
    label_id: str | None = None
    """With labels: the column of the sequence's id."""
    label_column: str | None = None
    """With labels: the column of the label."""
    ids_recur: bool = False
    """The plant uses its sequence ids again: one that the model was trained on means another sequence here."""

    @model_validator(mode="after")
    def _one_truth(self) -> DataSet:
        if self.label is not None and self.labels is not None:
            raise ValueError("has label and labels: label is one for all sequences, so leave one of them out")
        if self.labels is None and (given := [key for key in _LABEL_KEYS if getattr(self, key) is not None]):
            raise ValueError(f"{given[0]} is about labels: name their file with labels")
        return self


class Limits(ConfigSection):
    """Shares that may not be exceeded in any data set; they are counted, not estimated."""

    lost_samples: Share = 0.0
    """Of samples: unreadable, too late, or displaced by another value of their time."""
    unscorable: Share = 0.0
    """Of sequences: without a score, with the reason in the protocol."""
    unlabelled: Share = 0.0
    """Of sequences: without a label, in data sets that have labels."""


class Expectation(ConfigSection):
    """A rate that is to be shown."""

    what: What
    """false_alarms, false_warnings: normal sequences that alert, or are warned of. detection, warned: faulty ones."""
    at_most: Annotated[float, Field(ge=0, lt=1)] | None = None
    at_least: Annotated[float, Field(gt=0, le=1)] | None = None
    fault: Text | None = None
    """The kind of fault, as the labels name it; without it all faulty sequences."""
    lead: Duration | None = None
    """Of warned: a warning counts if it comes at least so long before the sequence's end."""
    data: tuple[DataName, ...] | None = None
    """The data sets on which it is to be shown; without it all of them together."""
    decide_by: Basis | None = None
    """Instead of that of the file."""

    @model_validator(mode="after")
    def _fits(self) -> Expectation:
        wanted, other = ("at_most", "at_least") if self.what in _MOST else ("at_least", "at_most")
        if getattr(self, other) is not None or getattr(self, wanted) is None:
            raise ValueError(f"{self.what} takes {wanted}, and no {other}")
        if self.fault is not None and self.what in _MOST:
            raise ValueError(f"{self.what} is about normal sequences: leave fault out")
        if self.lead is not None and self.what != "warned":
            raise ValueError(f"lead is about warnings of faulty sequences (what: warned), not about {self.what}")
        return self

    @property
    def limit(self) -> float:
        """Return the rate that is not to be exceeded, or to be reached."""
        limit = self.at_least if self.at_most is None else self.at_most
        assert limit is not None
        return limit


class Acceptance(ConfigSection):
    """What the monitor of a plant must show before people rely on it."""

    title: Text
    """What is accepted, and where: the head of the protocol."""
    decide_by: Basis = "bound"
    """bound: the whole 95 % interval of a rate must keep to the limit. estimate: the share that was found must."""
    data: tuple[DataSet, ...]
    """Data sets, none of which trained the model."""
    limits: Limits = Limits()
    expect: tuple[Expectation, ...]
    """Rates that are to be shown."""
    restarts: int | None = Field(default=3, ge=1, le=20)
    """How often a run on each data set is broken off and started anew; null: this is not looked at."""
    replays: int | None = Field(default=2, ge=2, le=10)
    """How many replays of each data set are compared; null: this is not looked at."""

    @property
    def wants_warnings(self) -> bool:
        """Return whether an expectation is about warnings."""
        return any(each.what in _WARNINGS for each in self.expect)

    def basis_of(self, expectation: Expectation) -> Basis:
        """Return what decides on ``expectation``."""
        return expectation.decide_by or self.decide_by

    def sets_of(self, expectation: Expectation) -> tuple[DataSet, ...]:
        """Return the data sets that ``expectation`` is about."""
        return tuple(each for each in self.data if expectation.data is None or each.name in expectation.data)


def load_acceptance(path: Path) -> Acceptance:
    """Read and check a file of expectations. Raises ConfigError with all problems, each with its line."""
    try:
        os.close(open_regular(path))  # a FIFO would wait for its other end
    except NotRegularError as error:
        raise ConfigError([Problem("", str(error.strerror))], source=str(path)) from error
    except OSError:
        pass  # what is wrong with it is said as it is read
    content, lines, problems = read_yaml(path, "streamad validate --init")
    check_schema(content, lines, path)
    try:
        acceptance = Acceptance.model_validate(content)
    except ValidationError as error:
        problems += validation_problems(error, Acceptance, _NO_ENVIRONMENT, lines, ())
        raise ConfigError(problems, source=str(path)) from None
    if problems := [*problems, *_contradictions(acceptance, lines)]:
        raise ConfigError(problems, source=str(path))
    return acceptance


def _contradictions(acceptance: Acceptance, lines: dict[Loc, int]) -> list[Problem]:
    """Return what fits no data set, or could never be shown."""
    found: list[tuple[Loc, str]] = []
    names = [each.name for each in acceptance.data]
    # No bounds of pydantic: it also says that there is none if one is wrong.
    for key, listed in (("data", acceptance.data), ("expect", acceptance.expect)):
        if not 0 < len(listed) <= _MOST_LISTED:
            found.append(((key,), f"must list from 1 to {_MOST_LISTED}"))
    found += [
        (("data", place, "name"), f"{name} is the name of two data sets: rename one")
        for place, name in enumerate(names)
        if name in names[:place]
    ]
    for place, each in enumerate(acceptance.expect):
        if unknown := sorted({*(each.data or ())}.difference(names)):
            text = f"no data set is named {unknown[0]}; there are {', '.join(names)}"
            found.append((("expect", place, "data"), text))
        if acceptance.basis_of(each) == "bound" and each.limit in (0.0, 1.0):
            key = "at_most" if each.at_most is not None else "at_least"
            text = (
                f"no number of sequences shows {each.limit:g} by the bound of an interval: name a rate that is enough, "
                "or write decide_by: estimate"
            )
            found.append((("expect", place, key), text))
    return [Problem(".".join(map(str, loc)), text, line_of(lines, loc)) for loc, text in found]
