"""Reads a YAML config with the line of every key, and the environment that overrides its keys."""

from __future__ import annotations

import itertools
import json
import os
import re
import typing
from collections import Counter
from collections.abc import Collection, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from streamad.errors import ConfigError, Problem
from streamad.plugins import Loc, error_messages, keys_of, model_in, nearest_key
from streamad.system.rights import reason

# A file has at least a character for each key and item: more of them come from aliases that multiply.
_ENTRIES = 100_000
_MAX_DEPTH = 50
_MOST_BYTES = 1 << 24
_INDEX_DIGITS = 9
SCHEMA = 1
"""The schema of ``plant.yaml`` that this release reads; a file may say it (``schema: 1``)."""
SCHEMA_KEY = "schema"
# Kubernetes sets these in every container if a service is named streamad.
_KUBERNETES = re.compile(
    r"(?:[A-Z0-9]+_)*(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9]+)*|PORT(?:_[0-9]+_[A-Z]+(?:_[A-Z]+)?)?)"
)


class _Loader(yaml.SafeLoader):
    """A safe loader whose every error is a YAMLError with its line, also for ``2020-13-45`` or ``!!bool maybe``."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Make the Python value of ``node``."""
        try:
            return super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
            kind = str(node.tag).rpartition(":")[2]
            raise yaml.constructor.ConstructorError(None, None, f"no valid {kind}", node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Make a mapping, whose keys are texts also if they read ``on`` or ``no``, which are booleans elsewhere."""
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.tag == "tag:yaml.org,2002:bool":
                key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, maker: str = "streamad init") -> tuple[dict[str, Any], dict[Loc, int], list[Problem]]:
    """Return the mapping in ``path``, the line of each key, and a problem for each key given twice.

    ``maker`` is the command that writes such a file. Raises ConfigError if the file holds no mapping.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode("utf-8")
    except OSError as error:
        hint = f"; write one with: {maker}" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(
            [Problem("", f"cannot read it: {reason(error, path, 'read')}{hint}")], source=str(path)
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError([Problem("", "is not UTF-8 text")], source=str(path)) from error
    if len(data) > _MOST_BYTES:
        raise ConfigError([Problem("", f"is larger than {_MOST_BYTES >> 20} MiB")], source=str(path))
    try:
        content, located = _parse(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise ConfigError([Problem("", f"is not YAML: {what}", line)], source=str(path)) from error
    except RecursionError as error:
        raise ConfigError([Problem("", "is nested too deeply")], source=str(path)) from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError([Problem("", "must be a mapping of sections")], source=str(path))
    lines = dict(located)
    counts = Counter(loc for loc, _ in located)
    twice = [Problem(".".join(map(str, loc)), "key given twice", lines[loc]) for loc in counts if counts[loc] > 1]
    return content, lines, twice


def _parse(text: str) -> tuple[Any, list[tuple[Loc, int]]]:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        # Before any value is made: aliases of aliases are small as nodes and huge as values.
        most = max(_ENTRIES, len(text))
        located = list(itertools.islice(_walk(node, ()), most + 1))
        if len(located) > most:
            raise yaml.YAMLError(f"more than {most} entries (aliases that multiply?)")
        return (None if node is None else loader.construct_document(node)), located
    finally:
        loader.dispose()


def _walk(node: Any, prefix: Loc) -> Iterator[tuple[Loc, int]]:
    if len(prefix) > _MAX_DEPTH:
        raise RecursionError
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
    """Return the line of ``loc`` or of its nearest parent in the file."""
    while loc:
        if loc in lines:
            return lines[loc]
        loc = loc[:-1]
    return None


def environment_of(prefix: str) -> dict[str, str]:
    """Return the environment variables with ``prefix``, in any case: name in capitals -> name as it is set."""
    return {name.upper(): name for name in sorted(os.environ) if name.upper().startswith(prefix)}


def stray_environment(model: type[BaseModel], prefix: str, foreign: frozenset[str]) -> dict[str, Problem]:
    """Return a problem for each prefixed environment variable that names no key (a typo)."""
    problems = {}
    for variable, name in environment_of(prefix).items():
        key = variable.removeprefix(prefix)
        loc: Loc = tuple(key.lower().split("__"))
        if variable in foreign or (loc[0] not in model.model_fields and _KUBERNETES.fullmatch(key)):
            continue
        message = _stray(model, loc, prefix)
        if message is not None:
            problems[variable] = Problem(f"environment variable {name}", message)
    return problems


def _stray(model: type[BaseModel], loc: Loc, prefix: str) -> str | None:
    for depth, part in enumerate(loc):
        field = keys_of(model).get(str(part))
        if field is None:
            return nearest_key(model, (part,))
        if typing.get_origin(field.annotation) is tuple and depth + 1 < len(loc):
            return f"a list is overridden as a whole: set {_variable(prefix, loc[: depth + 1])} to all of it, as JSON"
        inner = model_in(field.annotation)
        if inner is None:
            return None
        model = inner
    return None


def secret_variables(content: Any) -> Iterator[str]:
    """Yield the environment variables that the config names as sources of secrets (``env: NAME``)."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key == "env" and isinstance(value, str):
                yield value.upper()
            yield from secret_variables(value)
    elif isinstance(content, list):
        for item in content:
            yield from secret_variables(item)


def check_schema(content: dict[str, Any], lines: dict[Loc, int], path: Path) -> None:
    """Take the number of the schema out of ``content``. Raises ConfigError if it is not ours."""
    found = content.pop(SCHEMA_KEY, SCHEMA)
    if type(found) is int and found == SCHEMA:
        return
    reads = f"streamad {version('streamad-monitor')} reads {SCHEMA}"
    if type(found) is int and found > SCHEMA:
        what = f"this file is of schema {found}, {reads}: update streamad"
    else:
        what = f"{repr(found)[:40]} is unknown, {reads}: write {SCHEMA_KEY}: {SCHEMA}, or leave it out"
    raise ConfigError([Problem(SCHEMA_KEY, what, lines.get((SCHEMA_KEY,)))], source=str(path))


def environment_content(prefix: str) -> tuple[list[dict[str, Any]], list[Problem]]:
    """Return the last key and the value, JSON decoded, of each of ``environment_of``, and problems.

    A value that is nested more deeply than a file may be is a problem.
    """
    content, problems = [], []
    for variable, name in environment_of(prefix).items():
        value: Any = os.environ[name]
        try:
            value = json.loads(value)
            is_deep = _depth(value) > _MAX_DEPTH
        except ValueError:  # a text, or a mistake that is reported when the key itself is read
            is_deep = False
        except RecursionError:
            is_deep = True
        content.append({variable.rpartition("__")[2].lower(): value})
        if is_deep:
            problems.append(Problem(f"environment variable {name}", "is nested too deeply"))
    return content, problems


def _depth(value: Any) -> int:
    """Return the number of mappings and lists around the innermost value."""
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return depth


def validation_problems(
    error: ValidationError, model: type[BaseModel], prefix: str, lines: dict[Loc, int], stray: Collection[str]
) -> Iterator[Problem]:
    """Yield pydantic's errors as problems, except those caused by a ``stray`` environment variable."""
    for loc, kind, message in error_messages(error, model):
        variable = _variable(prefix, loc)
        if kind == "extra_forbidden" and variable in stray:
            continue
        if kind == "tuple_type" and any(name.startswith(variable + "__") for name in stray):
            continue
        yield _located(loc, message, prefix, lines)


def locate(problem: Problem, prefix: str, lines: dict[Loc, int]) -> Problem:
    """Return a plug-in's problem with the line or variable of its key, or of the nearest parent."""
    if problem.line is not None:
        return problem
    loc: Loc = ()
    for part in problem.path.split("."):
        is_index = part.isdecimal() and len(part) <= _INDEX_DIGITS and (*loc, int(part)) in lines
        loc = (*loc, int(part) if is_index else part)
    return _located(loc, problem.message, prefix, lines)


def _located(loc: Loc, message: str, prefix: str, lines: dict[Loc, int]) -> Problem:
    variables = environment_of(prefix)
    for depth in range(len(loc), 0, -1):
        variable = _variable(prefix, loc[:depth])
        # A section may be given as JSON: its keys are then in no file.
        if variable in variables and (depth == len(loc) or loc not in lines):
            inside = ".".join(map(str, loc[depth:]))
            return Problem(f"environment variable {variables[variable]}" + (f", {inside}" if inside else ""), message)
    return Problem(".".join(map(str, loc)), message, line_of(lines, loc))


def _variable(prefix: str, loc: Loc) -> str:
    return prefix + "__".join(map(str, loc)).upper()
