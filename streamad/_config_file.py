"""Reads a YAML config with the line of every key, and finds the key that a mistyped one meant."""

from __future__ import annotations

__all__ = ["line_of", "nearest_key", "read_yaml", "stray_environment"]

import difflib
import os
import typing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from streamad.errors import ConfigError, Problem

Loc = tuple[int | str, ...]


def read_yaml(path: Path) -> tuple[dict[str, Any], dict[Loc, int]]:
    """Return the mapping in ``path`` and the line of each key; raises ConfigError, also for a key given twice."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        hint = "; write one with: streamad init" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError([Problem("", f"cannot read it: {error.strerror}{hint}")], source=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError([Problem("", "is not UTF-8 text")], source=str(path)) from error
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        what = getattr(error, "problem", None) or str(error)
        raise ConfigError([Problem("", f"is not YAML: {what}", line)], source=str(path)) from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError([Problem("", "must be a mapping of sections")], source=str(path))
    located = list(_walk(node, ()))
    lines = dict(located)
    if len(lines) < len(located):
        counts = Counter(loc for loc, _ in located)
        twice = [Problem(".".join(map(str, loc)), "key given twice", lines[loc]) for loc in counts if counts[loc] > 1]
        raise ConfigError(twice, source=str(path))
    return content, lines


def _walk(node: Any, prefix: Loc) -> Iterator[tuple[Loc, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            loc = (*prefix, str(key.value))
            yield loc, key.start_mark.line + 1
            yield from _walk(value, loc)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            loc = (*prefix, index)
            yield loc, value.start_mark.line + 1
            yield from _walk(value, loc)


def line_of(lines: dict[Loc, int], loc: Loc) -> int | None:
    """Return the line of ``loc`` or of its nearest parent that stands in the file."""
    while loc:
        if loc in lines:
            return lines[loc]
        loc = loc[:-1]
    return None


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in typing.get_args(annotation):
        found = _model_in(part)
        if found is not None:
            return found
    return None


def _model_at(model: type[BaseModel], loc: Loc) -> type[BaseModel]:
    for part in loc:
        field = model.model_fields.get(str(part))
        inner = _model_in(field.annotation) if field is not None else None
        model = inner or model
    return model


def nearest_key(model: type[BaseModel], loc: Loc) -> str:
    """Say that the key at ``loc`` is unknown, and which known one it is nearest to."""
    known = _model_at(model, loc[:-1]).model_fields
    near = difflib.get_close_matches(str(loc[-1]), known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
    return f"unknown key {str(loc[-1])!r}; {hint}"


def stray_environment(model: type[BaseModel], prefix: str, foreign: frozenset[str]) -> list[Problem]:
    """Return a problem for each prefixed environment variable that names no key, so that a typo is not silent."""
    problems = []
    for variable in sorted(os.environ):
        if not variable.startswith(prefix) or variable in foreign:
            continue
        loc: Loc = tuple(part.lower() for part in variable.removeprefix(prefix).split("__"))
        current = model
        for depth, part in enumerate(loc):
            if str(part) not in current.model_fields:
                problems.append(Problem(f"environment variable {variable}", nearest_key(model, loc[: depth + 1])))
                break
            inner = _model_in(current.model_fields[str(part)].annotation)
            if inner is None:
                break
            current = inner
    return problems
