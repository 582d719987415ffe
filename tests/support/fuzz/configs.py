"""A plant's config, changed in its values, its YAML or by the environment, and the commands that read it."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from streamad.settings.plant_yaml import ENV_PREFIX, Settings
from tests.support.fuzz.calling import call
from tests.support.fuzz.law import broken
from tests.support.fuzz.plant import CONFIG, DATES, FuzzPlant
from tests.support.fuzz.values import BOMB, CONTAINERS, NUMBERS, QUANTITIES, RAW, TEXTS, URLS
from tests.support.ingest.mutations import damaged_bytes

_COMMANDS = (
    *(["check", "--fast"],) * 6,
    *(["check"], ["check", "--json"], ["check", "--fast", "--options"], ["models", "list"], ["models", "status"]),
    *(
        ["inliers", "list"],
        ["replay", "-q"],
        ["score"],
        ["run", "-q"],
        ["feedback", "--stream", "r1", "--sequence", "B-4", "--veto"],
    ),
    *(
        ["topics", "check"],
        ["alerts", "tail", "--limit", "1"],
        ["models", "show"],
        ["models", "rollback"],
        ["record", "--out", "copy"],
    ),
)
_ENDLESS = ("run", "tail", "record", "topics")


def run_config(rng: random.Random, plant: FuzzPlant, folder: Path) -> Iterator[tuple[list[str], str | None]]:
    """Change the config of a copy of the plant and call a command; yield it with how it broke the law."""
    place = plant.copy(folder)
    environment = _environment(rng) if rng.random() < 0.35 else {}
    (place / "plant.yaml").write_bytes(_config(rng, changes=not environment or rng.random() < 0.2))
    words = list(rng.choice(_COMMANDS))
    endless = any(word in words for word in _ENDLESS)
    answer = call(words, place, environment, stop_after_s=1.5 if endless else None)
    yield [*(f"{name}={value[:80]!r}" for name, value in environment.items()), *words], broken(answer, words)


def _config(rng: random.Random, *, changes: bool) -> bytes:
    content: Any = copy.deepcopy(CONFIG if rng.random() < 0.8 else {**CONFIG, **DATES})
    kind = rng.random() if changes else 1.0
    for _ in range(rng.choice([1, 1, 2, 3]) if kind < 0.7 else 0):
        _set_odd(content, rng)
    text = _dumped(content)
    if 0.7 <= kind < 0.9:
        text = _raw_changed(text, rng)
    data = text.encode("utf-8", "surrogatepass")
    if 0.9 <= kind < 1.0:
        data = rng.choice(
            [damaged_bytes(data, rng), text.encode("utf-16"), b"\xef\xbb\xbf" + data, data + b"\x00", b"", b"x"]
        )
    return data


def _dumped(content: Any) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def keys() -> list[tuple[str, ...]]:
    """Return the path of every key of the config."""
    schema = Settings.model_json_schema()
    return list(_keys(schema, schema, ()))


def _keys(node: dict[str, Any], root: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for part in (node, *node.get("anyOf", ()), *node.get("allOf", ())):
        inner = root["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        for name, below in inner.get("properties", {}).items():
            yield (*path, name)
            yield from _keys(below, root, (*path, name))


_KEYS = keys()


def _odd_value(rng: random.Random) -> Any:
    return copy.deepcopy(rng.choice(rng.choice([TEXTS, URLS, NUMBERS, QUANTITIES, CONTAINERS])))


def _set_odd(content: dict[str, Any], rng: random.Random) -> None:
    *parents, last = rng.choice(_KEYS)
    place = content
    for name in parents:
        inner = place.setdefault(name, {})
        if not isinstance(inner, dict):
            inner = place[name] = {}
        place = inner
    kind = rng.random()
    if kind < 0.1:
        place.pop(last, None)
    elif kind < 0.2:
        place[rng.choice(["unknown", "", "Name", "\u202e", "a" * 300, last + "s"])] = _odd_value(rng)
    elif kind < 0.3 and content.get("channels"):
        content["channels"] = rng.choice(
            [
                [{"name": "temp"}] * 2,
                [_odd_value(rng)],
                [{"name": _odd_value(rng)}],
                [{"name": f"c{i}"} for i in range(2_000)],
            ]
        )
    elif kind < 0.4:
        place[last] = {rng.choice(["format", "delimiter", "group", "epochs", "x", ""]): _odd_value(rng)}
    else:
        place[last] = _odd_value(rng)


def _raw_changed(text: str, rng: random.Random) -> str:
    """Put YAML that no dumper writes in place of a value, or beside it all."""
    lines = text.splitlines()
    place = rng.randrange(len(lines))
    raw = rng.choice(RAW)
    kind = rng.randrange(5)
    if kind == 0:
        lines.insert(place, rng.choice([raw, f"{raw}: x", f"? {raw}", f"  {raw}: {raw}", lines[place]]))
    elif kind == 1:
        lines = [*BOMB.splitlines(), *lines, "x: *a9"]
    elif kind == 2:
        lines.append(f"<<: {raw}")
    else:
        lines[place] = f"{lines[place].partition(':')[0]}: {raw}"
    return "\n".join(lines) + "\n"


def _environment(rng: random.Random) -> dict[str, str]:
    return dict(_variable(rng) for _ in range(rng.choice([1, 1, 2])))


def _variable(rng: random.Random) -> tuple[str, str]:
    path = rng.choice(_KEYS)
    name = ENV_PREFIX + "__".join(path[: rng.randrange(1, len(path) + 1)]).upper()
    name += rng.choice([""] * 6 + ["__X", "__0", "__", "__ENV", "_X"])
    deep = rng.choice([300, 5_000, 100_000])
    value: str = rng.choice(
        [
            *(
                "[" * deep,
                '{"a":' * deep,
                "[" * deep + "]" * deep,
                '{"a":1}',
                '{"url":"recordings"}',
                "[1,2",
                '{"a":1,"a":2}',
            ),
            *(
                '[{"name":"temp"},{"name":"pressure"}]',
                "[" + "1," * 1_000 + "1]",
                "1" * 5_000,
                "NaN",
                '{"\\ud800":1}',
                '"\\ud800"',
                "\udcff",
            ),
            *(str(_odd_value(rng)) for _ in range(6)),
            *('{"kafka":{"password":{"env":"X"}}}', '{"env":["x"]}', '{"options":null}', "null", "{}", "[]", "[null]"),
        ]
    )
    return name, value.replace("\x00", "").encode(
        "utf-8", "surrogateescape" if "\udcff" in value else "replace"
    ).decode("utf-8", "surrogateescape")
