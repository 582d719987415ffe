"""Field names: the words that mark ids, times, ends, channels and values; units; names that a config accepts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


STREAM = _words(
    "stream unit reactor line machine asset equipment device station athlete player subject person tool vessel "
    "fermenter fermentor bioreactor plant host robot cell press source turbine patient user kettle mixer oven furnace "
    "anlage kessel linie maschine mischer ofen"
)
SEQUENCE = _words(
    "sequence seq batch lot run order stroke swing cycle episode trial job shot session experiment wafer recording "
    "heat charge chargen chargennummer chg campaign part rep repetition movement event auftrag auftragsnummer los "
    "losnummer versuch"
)
TIME = _words("time timestamp ts datetime date t clock when elapsed seconds sec secs millis zeit zeitstempel datum utc")
END = _words("end ended done last final finished eos eof complete completed closed stop")
CHANNEL = _words(
    "tag topic channel sensor signal variable metric parameter quantity item tagname point name field "
    "analyte component property propertyid propertyalias messstelle messpunkt messgroesse kanal kennzeichen merkmal"
)
VALUE = _words("value val v reading measurement measured wert pv result")
UNIT = _words("unit units uom einheit")
QUALITY = _words("quality q qual qc qualitaet guete status state opcquality")
FLAG = _words("ok good valid gueltig isok isgood isvalid")
"""Words of flags that are true for a good reading."""
BAD_FLAG = _words("bad invalid ungueltig isbad")
"""Words of flags that are false for a good reading."""

LABEL = _words("label labels anomaly anomalies anomalous anomalie fault faults faulty fehler changepoint outlier")
"""Words of columns that say what is wrong with a sample: they are the truth to find, and no reading."""
WHOLE_LABEL = _words("target class klasse truth y attack defect")
"""Names of such columns: a target_flow is a reading."""

ID = _words("id no nr number")
"""Words of numbers that name something."""

_OF_ANY_ID = _words("id no nr num number name code key ref uid uuid label identifier nummer bezeichnung kennung")
"""Words that say that a field names something, but not what: the field around it does (``batch.no``)."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_]+")
_DIVIDING_DOT = re.compile(r"\.(?=\w)")
_BRACKETS = re.compile(r"\s*[\[(]\s*([^\])]{1,16})\s*[\])]\s*$")
# Letters with a spelling in ASCII; all others lose their accents.
_SPELLED = str.maketrans({
    "ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ẞ": "SS",
    "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D",
})  # fmt: skip
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


def last_part(path: str) -> str:
    """Return what follows the last dot of a field's path; the dot of an abbreviation (``Lot No.``) divides nothing."""
    return _DIVIDING_DOT.split(path)[-1]


def hints(path: str) -> frozenset[str]:
    """Return the words of the last part of a field's path, in lower case, umlauts spelled out."""
    return _words_of(last_part(path))


def id_hints(path: str) -> frozenset[str]:
    """Return the words of a field's path that say what it names: ``no`` and ``batch`` of ``batch.no``."""
    found: frozenset[str] = frozenset()
    for part in reversed(_DIVIDING_DOT.split(path)):
        words = _words_of(part)
        found |= words
        if not words <= _OF_ANY_ID:
            break
    return found


def _words_of(part: str) -> frozenset[str]:
    spelled = unicodedata.normalize("NFC", part).translate(_SPELLED)
    return frozenset(word.lower() for word in _WORDS.findall(spelled))


def unit_of(name: str) -> str:
    """Return the unit that a name states in brackets (``Temp [°C]``, ``Druck (bar)``), else an empty text."""
    match = _BRACKETS.search(name)
    return match[1].strip() if match and not match[1].isdecimal() else ""


def without_unit(name: str) -> str:
    """Return ``name`` without the unit that it states in brackets."""
    return _BRACKETS.sub("", name)


def plain_name(text: str, fallback: str) -> str:
    """Return ``text`` as at most 64 letters, digits, '.', '_' and '-'; ``fallback`` if nothing is left of it."""
    spelled = unicodedata.normalize("NFC", text).translate(_SPELLED)
    if text.isupper():
        spelled = spelled.upper()
    ascii_text = unicodedata.normalize("NFKD", spelled).encode("ascii", "ignore").decode()
    plain = _NOT_PLAIN.sub("_", ascii_text).strip("_").lstrip(".")[:64]
    return plain or fallback


def channel_names(paths: Sequence[str]) -> list[str]:
    """Return a different name for each field, as the config accepts it."""
    names: dict[str, None] = {}
    numbers: dict[str, int] = {}
    for index, path in enumerate(paths):
        wanted = plain_name(_shortened(path) or path, f"ch{index:02d}")
        names[_unused(wanted, names, numbers)] = None
    return list(names)


def _shortened(path: str) -> str:
    """Return a path without its unit in brackets and without a last part such as ``.value``."""
    body, dot, last = _BRACKETS.sub("", path).rpartition(".")
    return body if dot and last.lower() in VALUE else f"{body}{dot}{last}"


def _unused(wanted: str, taken: Collection[str], numbers: dict[str, int]) -> str:
    """Return ``wanted``, with a number if it is taken; ``numbers`` holds the last number of each beginning."""
    beginning, name = wanted[:58], wanted
    while name in taken:
        numbers[beginning] = numbers.get(beginning, 1) + 1
        name = f"{beginning}_{numbers[beginning]}"
    return name
