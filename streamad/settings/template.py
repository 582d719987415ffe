"""Writes commented ``plant.yaml`` files: the meaning of each key, the chosen value, the alternatives."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from streamad.settings.yaml_file import SCHEMA, SCHEMA_KEY

_COMMENT_COLUMN = 44
_WIDTH = 110
# Words that YAML takes as one scalar wherever they stand, unless they read as a number, a date, true or nothing.
_SIMPLE = re.compile(r"[\w°][\w./+()^°-]*(?: [\w./+()^°-]+)*")
_RESOLVER, _TEXT = yaml.resolver.Resolver(), "tag:yaml.org,2002:str"


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a section; if not ``active``, it is an alternative, written as a comment."""

    key: str
    value: Any
    comment: str = ""
    active: bool = True


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the config: its key ('': the entries stand at the top level), purpose and entries."""

    key: str
    about: tuple[str, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class ChannelLine:
    """One channel: its name, unit, its name in the messages if different, what means missing, quality and fill."""

    name: str
    unit: str = ""
    field: str | None = None
    comment: str = ""
    missing: tuple[float, ...] = ()
    quality: dict[str, Any] | None = None
    values: dict[str, int] | None = None
    fill: str | None = None


def scalar(value: Any) -> str:
    """Return ``value`` as YAML on one line, quoted only if needed."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar(key)}: {scalar(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(scalar(item) for item in value) + "]"
    if isinstance(value, str):
        return value if _is_plain(value) else json.dumps(value, ensure_ascii=not value.isprintable())
    return json.dumps(value)


def _is_plain(text: str) -> bool:
    if not text or not text.isprintable() or any(mark in text for mark in ",[]{}#&*!|>'\"%@`"):
        return False
    if _SIMPLE.fullmatch(text):
        return bool(_RESOLVER.resolve(yaml.ScalarNode, text, (True, False)) == _TEXT)  # type: ignore[no-untyped-call]
    try:
        return bool(yaml.safe_load(f"[{text}]") == [text] and yaml.safe_load(f"key: {text}") == {"key": text})
    except yaml.YAMLError:
        return False


def render(head: Iterable[str], name: str, channels: Sequence[ChannelLine], sections: Iterable[Section]) -> str:
    """Return the text of a config, its comments aligned."""
    lines = [*_comments(head), "", f"{SCHEMA_KEY}: {SCHEMA}", f"name: {scalar(name)}", ""]
    lines += ["# The sensor signals, in the order of every array (field: the name in the messages, where it differs)."]
    lines += ["channels:", *(_commented(f"  - {scalar(channel_entry(line))}", line.comment) for line in channels)]
    for section in sections:
        lines += ["", *_comments(section.about), *_section_lines(section)]
    return "\n".join(lines) + "\n"


def _comments(texts: Iterable[str]) -> list[str]:
    return [f"# {line}".rstrip() for text in texts for line in (textwrap.wrap(text, _WIDTH) or [""])]


def channel_entry(line: ChannelLine) -> dict[str, Any]:
    """Return one channel as the config writes it, without empty keys."""
    missing = [int(number) if number.is_integer() and abs(number) < 1e15 else number for number in line.missing]
    given: dict[str, Any] = {"name": line.name, "unit": line.unit, "field": line.field, "missing": missing}
    given |= {"values": line.values, "quality": line.quality, "fill": line.fill}
    return {key: value for key, value in given.items() if value}


def _section_lines(section: Section) -> list[str]:
    if not section.key:
        return [_entry(entry, "") for entry in section.entries]
    if not any(entry.active for entry in section.entries):
        return [f"# {section.key}:", *(_entry(entry, "#   ") for entry in section.entries)]
    return [f"{section.key}:", *(_entry(entry, "  " if entry.active else "  # ") for entry in section.entries)]


def _entry(entry: Entry, indent: str) -> str:
    return _commented(f"{indent}{entry.key}: {scalar(entry.value)}", entry.comment)


def _commented(text: str, comment: str) -> str:
    return f"{text.ljust(_COMMENT_COLUMN)}  # {comment}" if comment else text


def judging_sections(recordings: Entry, *, early: bool) -> tuple[Section, ...]:
    """Return the sections that do not depend on the messages: model, alerts, learning (off), sinks, marks, run.

    Outputs go to ``out/``. ``early``: running sequences are looked at.
    """
    model = Section(
        "model",
        ("The detector, what it learns from, and the folder of its versions.",),
        (
            recordings,
            Entry("registry", "registry", "every trained version is kept here; or s3://BUCKET/PREFIX"),
            Entry("calibration", 0.5, "share held out for the false-alarm rate (below 150 sequences: out of fold)"),
            Entry("seed", 0, "same data, same seed, same model"),
            Entry("device", "auto", "auto, cpu, cuda or cuda:0"),
            Entry("detector", "ensemble", "fits in seconds; neutral_ad: learned transformations, minutes"),
        ),
    )
    alerts = Section(
        "alerts",
        ("How often a normal sequence may raise an alert. n calibration sequences certify 1/(n+1) at best.",),
        (
            Entry("false_alarm_rate", 0.02),
            *(
                [Entry("early", {"false_alarm_rate": 0.01}, "warnings while a sequence runs, rarely of normal ones")]
                * early
            ),
        ),
    )
    learning = Section(
        "learning",
        (
            "How the model follows the plant: it learns from what it judged normal, and a new model must pass a "
            "comparison. As long as these lines are comments, the model stays as it is.",
        ),
        (
            Entry("store", "inliers", "where sequences are kept: a folder", active=False),
            Entry("schedule", "0 3 * * *", "retrain every night at three (cron, UTC)", active=False),
            Entry("first_training", 200, "without a model, collect so many first, most of them normal", active=False),
            Entry("presumed_anomalies", 0.0, "share of faults among these sequences, if known", active=False),
        ),
    )
    sinks = Section(
        "sinks",
        ('Where messages go: a JSON lines file each, or "stdout:". A role that is left out is not written.',),
        (
            Entry("alerts", "out/alerts.jsonl", "anomalous sequences"),
            *([Entry("warnings", "out/warnings.jsonl", "running sequences that leave the normal course")] * early),
            Entry("attributions", "out/attributions.jsonl", "why: transformations and channels"),
            Entry("verdicts", "out/verdicts.jsonl", "one for every sequence"),
            Entry("windows", "out/windows.jsonl", "the judged values of alerts and of some normal sequences"),
            Entry("dead_letters", "out/dead_letters.jsonl", "unreadable messages, as they came"),
            Entry("late", "out/late.jsonl", "samples that came too late"),
            Entry("events", "out/events.jsonl", "notices for the operator"),
            Entry("decisions", "out/decisions.jsonl", "who decided what (streamad audit)"),
            Entry("status", "out/status", "a folder: what each worker does, and what is open"),
        ),
    )
    run = Section(
        "run",
        ("Progress: a run resumes where the last one stopped. To start over, delete this folder and out/.",),
        (Entry("checkpoint", "checkpoint"),),
    )
    marks = Section(
        "",
        ("Where operators' marks on alerts are kept (streamad feedback, the page); a later learner reads them.",),
        (Entry("marks", "out/marks.jsonl"),),
    )
    return model, alerts, learning, sinks, marks, run
