"""Tells a line of units, or of types and statistics, from a line of names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LETTERS = _words("s h d m g l L K C F V A W N J T 1 - °")
_UNITS = _words(
    "sec secs second seconds ms msec us µs μs ns min mins hr hrs hour hours day days °c degc deg_c °f degf °k celsius "
    "kelvin fahrenheit bar mbar bara barg pa kpa hpa mpa psi psig atm torr mmhg "
    "kg mg lb kg/h kg/s kg/min t/h ml m3 m³ l/min l/h l/s lpm ml/min m3/h m³/h m3/s nm3/h gpm cfm slpm sccm "
    "% %rh rh% percent pct ppm ppb ph s/m ms/cm us/cm µs/cm mg/l g/l g/m3 kg/m3 kg/m³ "
    "rpm 1/min u/min 1/s hz khz mhz mv kv volt volts ma amp amps kw mw kwh wh va kva var ohm kohm "
    "kn nm mnm knm n/m kj mm cm km um µm μm inch ft m/s m/s2 m/s^2 m/s² m/min mm/s mm/s2 km/h mph "
    "deg degree degrees rad rad/s deg/s °/s dps ut µt μt mt gauss lux lx db dba "
    "-- none [] () n/a au a.u. arb count counts cts bool date time datetime utc iso8601 ts rn °c/min k/min bar/s bpm"
)
_TYPES = _words(
    "double float float32 float64 real number numeric decimal int int16 int32 int64 integer long unsignedlong short "
    "byte string str text varchar char object bool boolean datetime timestamp date datetime:rfc3339 "
    "avg min max smp std tot mean sum med sample"
)
_IN_BRACKETS = re.compile(r"\[([^\[\]]*)\]|\(([^()]*)\)|<([^<>]*)>|\{([^{}]*)\}")
_LEAST_SHARE = 0.6


def holds_units(cells: Sequence[str]) -> bool:
    """Return whether most of ``cells`` are units: in brackets, or well known."""
    return _share(cells, _is_unit)


def holds_types(cells: Sequence[str]) -> bool:
    """Return whether most of ``cells`` name types of data (double, string), or how readings were joined (Avg)."""
    return _share(cells, lambda text: text.lower() in _TYPES)


def unit_in(cell: str) -> str | None:
    """Return the unit that a cell of a line of units states, without brackets; None if it states none."""
    text = cell.strip()
    if found := _IN_BRACKETS.fullmatch(text):
        text = next(part for part in found.groups() if part is not None).strip()
    return None if text.lower() in ("", "-", "--", "none", "n/a", "unit", "units", "einheit") else text


def _is_unit(text: str) -> bool:
    return text in _LETTERS if len(text) == 1 else text.lower() in _UNITS or _IN_BRACKETS.fullmatch(text) is not None


def _share(cells: Sequence[str], fits: Callable[[str], bool]) -> bool:
    texts = [cell.strip() for cell in cells if cell.strip()]
    return bool(texts) and sum(map(fits, texts)) >= _LEAST_SHARE * len(texts)
