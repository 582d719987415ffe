"""Which kind of value each argument takes: one error that names it, before anything is done with it."""

from __future__ import annotations

import os
import reprlib
import sys
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import ValidationError

from streamad.errors import InputError
from streamad.safe_text import masked
from streamad.settings.learning import ModelSettings

_MOST: Final = 2**63 - 1  # torch's seeds end here


def refused(name: str, value: object, form: str) -> InputError:
    """Return the error that ``name`` is ``value``, and that it should be ``form``."""
    shown = " ".join(reprlib.repr(value).split())
    return InputError(f"{name} is {shown}: give {form}")


def text(name: str, value: Any, form: str) -> str:
    """Return ``value`` if it is text that is not empty. Raises InputError."""
    if not isinstance(value, str) or not value:
        raise refused(name, value, form)
    return value


def texts(name: str, values: Any, form: str) -> list[str]:
    """Return the items of a list, tuple, array, or column of a data frame that holds texts. Raises InputError."""
    found = items(name, values, form)
    if any(not isinstance(each, str) for each in found):
        raise refused(name, values, form)
    return [str(each) for each in found]  # numpy's texts are of a kind of their own


def items(name: str, values: Any, form: str) -> list[Any]:
    """Return the items of a list, tuple, array, or column of a data frame. Raises InputError."""
    if isinstance(values, str | bytes | Mapping | set | frozenset) or not isinstance(values, Iterable):
        raise refused(name, values, form)
    try:
        return list(values)
    except TypeError as error:  # an array without an axis
        raise refused(name, values, form) from error


def mapping(name: str, value: Any, form: str) -> dict[str, Any]:
    """Return a mapping with texts as keys, empty for None, and numpy's values as Python's. Raises InputError."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or any(not isinstance(key, str) for key in value):
        raise refused(name, value, form)
    return {key: _plain(each) for key, each in value.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def whole(name: str, value: Any, form: str, *, least: int = 0, most: int = _MOST) -> int:
    """Return a whole number from ``least`` to ``most``, of Python's kind or of numpy's. Raises InputError."""
    number: Any = value  # Integral and Real have no comparison for type checkers
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= number <= most:
        raise refused(name, value, form)
    return int(number)


def rate(value: Any) -> float:
    """Return a false-alarm rate. Raises InputError."""
    number: Any = value
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < number < 1:
        raise refused("false_alarm_rate", value, "a rate between 0 and 1, such as 0.02")
    return float(value)


def path(name: str, value: Any, form: str) -> Path:
    """Return the path ``value``. Raises InputError."""
    found = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(found, str) or not found or "\0" in found:
        raise refused(name, value, form)
    return Path(found)


def place(name: str, value: Any, form: str = "the path of a folder, or a URL such as s3://bucket/prefix") -> Path | str:
    """Return the path of a registry's folder, or its URL in an object store. Raises InputError."""
    if isinstance(value, str) and ":/" in value:
        try:
            return ModelSettings(registry=value).registry
        except ValidationError:
            raise refused(name, masked(value), form) from None
    return path(name, value, form)


def truth(name: str, value: Any, form: str = "True or False") -> bool:
    """Return a truth value, of Python's kind or of numpy's. Raises InputError."""
    if not isinstance(value, bool | np.bool_):
        raise refused(name, value, form)
    return bool(value)


def says(verbose: bool | None) -> bool:
    """Return whether lines of progress are printed on stderr; None: in a terminal and in a notebook."""
    if verbose is None:
        return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel.")
    return truth("verbose", verbose, "True, False or None")
