"""The places that a plant writes to, and whether one would overwrite another, the config, or be read as recordings."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path
from typing import Any

from streamad.errors import Problem
from streamad.messages import Role
from streamad.objects.stores import SCHEMES
from streamad.plugins import split_url
from streamad.settings.plant_yaml import Settings

OUTPUT_ROLES: tuple[Role, ...] = (
    "alerts", "warnings", "attributions", "verdicts", "windows", "dead_letters", "late", "events",
)  # fmt: skip
"""The roles of messages about what was read, each written to its sink by ``run`` and by a replay."""
_WRITTEN_ROLES: tuple[Role, ...] = (*OUTPUT_ROLES, "decisions")
_NAMES = {
    "model.registry": ("default/versions/0001/probe.npz", "default/versions/0001/manifest.json"),
    "model.cache": ("0123456789abcdef/default/versions/0001/probe.npz",),
    "learning.store": ("inliers.sqlite3", "learner.json"),
    "run.checkpoint": ("progress.json",),
    "sinks.status": ("worker.jsonl",),
}
"""Files as a plant writes them in each folder: a pattern of recordings must not match them."""
LEARNER_EVENTS = "learning.store.events"
"""The key of the learner's file of events among the places: it has none of its own in the config."""
OTHER_DECISIONS = "sinks.decisions (of others)"
"""The key of the file of decisions of all but the workers: it has none of its own in the config."""
_CONFIG = "config"
_TABLE = "sequences.table"
VIEW = "web.view"
_BESIDE_VIEW = ("", ".token", ".lock", "-wal", "-shm", "-journal")
"""Endings of the files that the page writes: its view, and what lies beside it."""
_DATABASES = {".sqlite3", ".sqlite", ".db"}
"""Endings that no format of recordings has."""


def place_key(role: Role) -> str:
    """Return the key of the config with the URL of ``role``."""
    return "marks" if role == "feedback" else f"sinks.{role}"


def sink_urls(settings: Settings) -> dict[Role, str]:
    """Return the URL of each role that has a sink."""
    urls = {role: getattr(settings.sinks, role) for role in _WRITTEN_ROLES}
    return {role: url for role, url in urls.items() if url is not None}


def learner_events_url(settings: Settings) -> str | None:
    """Return where the events of the learner go, None if there is no learner, or no events sink.

    A file of ``sinks.events`` belongs to a worker, whose checkpoint cuts it back; the learner's is beside its store.
    """
    learning, url = settings.learning, settings.sinks.events
    if learning is None or url is None:
        return None
    return url if file_path(url) is None else f"{learning.store}.events.jsonl"


def other_decisions_url(settings: Settings) -> str | None:
    """Return where decisions of all but the workers go: of people, the page and the learner; None without a sink.

    A file of ``sinks.decisions`` belongs to a worker, whose checkpoint cuts it back; theirs is beside it.
    """
    url = settings.sinks.decisions
    if url is None or (path := file_path(url)) is None:
        return url
    return str(Path(path).with_stem(f"{Path(path).stem}-others"))


def urls_of(settings: Settings, role: Role) -> tuple[str, ...]:
    """Return every place that the messages of ``role`` are written to, the workers' first."""
    url = settings.sinks.status if role == "status" else sink_urls(settings).get(role)
    others = {"events": learner_events_url, "decisions": other_decisions_url}
    of_others = others[role](settings) if role in others else None
    return tuple(dict.fromkeys(each for each in (url, of_others) if each is not None))


def input_urls(settings: Settings) -> dict[str, str]:
    """Return the URL of each key of the config that names recordings or a source."""
    urls = {"source.url": settings.source.url, "model.recordings": settings.model.recordings}
    return {key: url for key, url in urls.items() if url is not None}


def file_of(url: str, base_dir: Path) -> Path | None:
    """Return the file of the sink ``url``, links resolved; None if it is no file."""
    path = file_path(url)
    return None if path is None else _real(base_dir / path)


def file_path(url: str) -> str | None:
    """Return the path of the URL of a file or folder, None for another place."""
    scheme, rest, _ = split_url(url)
    return rest if scheme == "file" and rest else None


def folders_of(settings: Settings, base_dir: Path) -> dict[str, Path]:
    """Return the local folders that the plant writes, links resolved, by the key of the config."""
    model = settings.model
    urls = {"model.cache": str(model.cache)} if is_stored(model.registry) else {"model.registry": str(model.registry)}
    if settings.run.checkpoint is not None:
        urls["run.checkpoint"] = str(settings.run.checkpoint)
    if settings.learning is not None:
        urls["learning.store"] = str(settings.learning.store)
    if settings.sinks.status is not None and (status := file_path(settings.sinks.status)) is not None:
        urls["sinks.status"] = status
    return {key: _real(base_dir / path) for key, path in urls.items()}


def held_files(settings: Settings, base_dir: Path) -> dict[Path, str]:
    """Return the files of secrets, TLS keys and certificates, links resolved, with the keys of the config.

    In the options of source and sinks, of receivers of notices and of ``decode.registry``, they are what a key such as
    ``key_file`` or ``{file: PATH}`` names; beside them those of the page.
    """
    web = settings.web
    options: dict[str, Any] = {"source.options": settings.source.options, "sinks.options": settings.sinks.options}
    options["bridge.options"] = {} if settings.bridge is None else settings.bridge.options
    registry = settings.decode.registry
    options["decode.registry"] = {} if registry is None else registry.model_dump(mode="json", exclude_none=True)
    options["web.tls"] = {} if web.tls is None else web.tls.model_dump(mode="json")
    for number, receiver in enumerate(settings.notify.receivers):
        options[f"notify.receivers.{number}"] = receiver.model_dump(mode="json", exclude_none=True)
    named = ((key, path) for where, given in options.items() for key, path in _named_files(where, given))
    held = {_real(base_dir / path): key for key, path in named}
    if web.auth.token is not None:
        held[_real(base_dir / web.auth.token.file)] = "web.auth.token.file"
    if web.auth.users is not None:
        held[_real(base_dir / web.auth.users)] = "web.auth.users"
    return held


def _named_files(where: str, value: object) -> Iterator[tuple[str, str]]:
    if not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        path = f"{where}.{key}"
        if isinstance(inner, Mapping) and isinstance(inner.get("file"), str) and len(inner) == 1:
            yield path, inner["file"]
        elif isinstance(inner, str) and str(key).endswith("_file"):
            yield path, inner
        else:
            yield from _named_files(path, inner)


def is_stored(registry: str | Path) -> bool:
    """Return whether a registry lies in an object store, not in a folder."""
    return str(registry).partition("://")[0] in SCHEMES


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a plant: sinks by key of the config, folders (``folders_of``), inputs, the page's view, the config.

    ``sinks`` and ``inputs`` are URLs, relative to ``base_dir``. ``held`` files (``held_files``) are read only.
    """

    sinks: Mapping[str, str]
    inputs: Mapping[str, str]
    base_dir: Path
    config: Path | None = None
    folders: Mapping[str, Path] = field(default_factory=dict)
    held: Mapping[Path, str] = field(default_factory=dict)
    view: Path | None = None

    @classmethod
    def of(cls, settings: Settings, base_dir: Path, config: Path | None) -> Places:
        """Return all places that ``settings`` name."""
        sinks = {place_key(role): url for role, url in sink_urls(settings).items()}
        if (events := learner_events_url(settings)) is not None and file_path(events) is not None:
            sinks[LEARNER_EVENTS] = events
        if (others := other_decisions_url(settings)) is not None and file_path(others) is not None:
            sinks[OTHER_DECISIONS] = others
        if settings.notify.undelivered is not None:
            sinks["notify.undelivered"] = settings.notify.undelivered
        sinks[place_key("feedback")] = settings.marks
        folders, held = folders_of(settings, base_dir), held_files(settings, base_dir)
        inputs, table = input_urls(settings), settings.sequences.table
        if table is not None:
            inputs[_TABLE] = str(table.file)
        return cls(sinks, inputs, base_dir, config, folders, held, settings.web.view)

    def problem_of(self, option: str, path: Path) -> str | None:
        """Return why nothing may be written to the file ``path``, which the option ``option`` names; None if it may."""
        path, taken = _real(path), self._taken_by_config() | {place: key for key, place in self._written()}
        taken |= dict.fromkeys(self._of_view(), VIEW)
        return self._conflict(option, path, taken) or self._read_back(option, path)

    def problems(self) -> list[Problem]:
        """Return the conflicts, at most one a key; a place that two have is reported at the later one.

        Two sinks in one file would truncate each other's messages after a crash; a message would break the config, a
        model or the progress of runs; what is written in an input folder would be read as recordings by the next run.
        """
        taken = self._taken_by_config()
        problems = self._table_among_recordings()
        for key, path in self._written():
            conflict = self._unexpanded(path) or self._conflict(key, path, taken) or self._read_back(key, path)
            if conflict is None:
                taken[path] = key
            else:
                problems.append(Problem(key, conflict))
        view = self._of_view()
        conflicts = (self._unexpanded(path) or self._conflict(VIEW, path, taken) for path in view)
        conflict = next(filter(None, conflicts), None) or next(filter(None, map(self._view_read_back, view[:1])), None)
        return problems if conflict is None else [*problems, Problem(VIEW, conflict)]

    def _of_view(self) -> list[Path]:
        """Return the file of the page's view, and those that the page writes beside it; none without a page."""
        if self.view is None:
            return []
        path = _real(self.base_dir / self.view)
        return [path.with_name(f"{path.name}{ending}") for ending in _BESIDE_VIEW]

    def _view_read_back(self, path: Path) -> str | None:
        """Return why a source would read the view; by its ending it is none of the recordings of a folder."""
        inputs = {where: _input_of(url, self.base_dir) for where, url in self.inputs.items()}
        if path.suffix in _DATABASES and path.parent in inputs.values():
            inputs = {where: place for where, place in inputs.items() if place != path.parent}
        return self._read_back(VIEW, path, inputs)

    def _table_among_recordings(self) -> list[Problem]:
        """Return the problem that a source would read the table of batches as a recording."""
        if _TABLE not in self.inputs:
            return []
        path = _real(self.base_dir / self.inputs[_TABLE])
        for where, url in self.inputs.items():
            place = None if where == _TABLE else _input_of(url, self.base_dir)
            if place is not None and _reads(place, _TABLE, path, is_folder=False):
                text = f"{path} would be read as recordings ({where}: {url}): put the table into another folder"
                return [Problem(_TABLE, text)]
        return []

    def _unexpanded(self, path: Path) -> str | None:
        """Return why ``path`` is refused if it begins with ~, the home folder for a shell, not for streamad."""
        base = _real(self.base_dir)
        if path.is_relative_to(base) and path.relative_to(base).as_posix().startswith("~"):
            return f"~ is not the home folder here, but a name ({path}): write the whole path"
        return None

    def _taken_by_config(self) -> dict[Path, str]:
        return {} if self.config is None else {_real(self.config): _CONFIG}

    def _written(self) -> Iterable[tuple[str, Path]]:
        yield from self.folders.items()
        for key, url in self.sinks.items():
            if (path := file_of(url, self.base_dir)) is not None:
                yield key, path

    def _conflict(self, key: str, path: Path, taken: Mapping[Path, str]) -> str | None:
        is_folder = key in self.folders
        for other, owner in self.held.items():
            if _is_same(path, other):
                return f"{path} is the file of {owner}, a secret or certificate: {_advice(key, is_folder=is_folder)}"
        for owner, url in self.sinks.items():
            followed = file_of(url, self.base_dir)
            if followed is not None and _is_position(path, followed):
                kept = f"the file in which readers of {owner} keep their position"
                return f"{path} is {kept}: {_advice(key, is_folder=is_folder)}"
        for other, owner in taken.items():
            if _is_same(path, other):
                return self._same(key, path, owner)
            if owner in self.folders and (other in path.parents or _is_linked_from(path, other)):
                return f"{path} lies in the folder of {owner} ({other}): {_advice(key, is_folder=is_folder)}"
            if is_folder and path in other.parents:
                what = "the config" if owner == _CONFIG else f"the folder of {owner}"
                return f"{path} holds {what} ({other}): {_advice(key, is_folder=True)}"
        return None

    def _same(self, key: str, path: Path, owner: str) -> str:
        is_folder = key in self.folders
        if owner == _CONFIG:
            return f"{path} is the config itself: {_advice(key, is_folder=is_folder)}"
        if owner in self.folders:
            return f"{path} is also the folder of {owner}: {_advice(key, is_folder=is_folder)}"
        is_role = not key.startswith("--") and key != VIEW
        advice = "give every role a file of its own" if is_role else _advice(key, is_folder=False)
        return f"{path} is also the file of {owner}: {advice}"

    def _read_back(self, key: str, path: Path, inputs: Iterable[str] | None = None) -> str | None:
        if key not in self.folders and _is_folder(path):  # the sink reports that it cannot write there
            return None
        for where in self.inputs if inputs is None else inputs:
            url = self.inputs[where]
            place = _input_of(url, self.base_dir)
            if place is not None and _reads(place, key, path, is_folder=key in self.folders):
                is_named = key in self.folders or key.startswith("--")
                elsewhere = "name another folder" if is_named else "write to another folder, such as out/"
                return f"{path} would be read as recordings ({where}: {url}): {elsewhere}"
        return None


def _advice(key: str, *, is_folder: bool) -> str:
    if key.startswith("--"):
        return f"name another place with {key}"
    if key == LEARNER_EVENTS:
        return "the learner writes its events there, so name another learning.store"
    if key == OTHER_DECISIONS:
        return "decisions of people and of the learner go there, so name another file as sinks.decisions"
    if is_folder:
        return "name a folder of its own"
    return f"name another file, such as out/{key.rpartition('.')[2]}{'.sqlite3' if key == VIEW else '.jsonl'}"


def _is_same(path: Path, other: Path) -> bool:
    """Return whether both are one file or folder, also by a second name (hard link) of an existing one."""
    if path == other:
        return True
    try:
        return path.samefile(other)
    except (OSError, ValueError):
        return False


def _is_position(path: Path, followed: Path) -> bool:
    """Return whether ``path`` is the position of a group of readers of ``followed``, or its lock, by any name."""
    if path.parent == followed.parent and (
        (path.name.startswith(f"{followed.name}.") and path.name.endswith(".position"))
        or (path.name.startswith(f".{followed.name}.") and path.name.endswith(".position.lock"))
    ):
        return True
    return any(_is_same(path, each) for each in followed.parent.glob(f"{escape(followed.name)}.*.position"))


def _is_linked_from(path: Path, folder: Path) -> bool:
    """Return whether a file in ``folder``, at any depth, is the file ``path`` by another name (hard link)."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return False
    if status.st_nlink < 2 or not stat.S_ISREG(status.st_mode):
        return False
    return any(_is_same(path, Path(parent, name)) for parent, _, names in os.walk(folder) for name in names)


def _input_of(url: str, base_dir: Path) -> Path | None:
    """Return the file, folder or pattern of the source ``url``, in which ``~`` is the home folder."""
    scheme, rest, _ = split_url(url)
    try:
        return _real(base_dir / Path(rest).expanduser()) if scheme == "file" and rest else None
    except RuntimeError:  # there is no such user: the source reports it
        return None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long: the sink reports it
        return False


def _reads(place: Path, key: str, path: Path, *, is_folder: bool) -> bool:
    """Return whether the source at ``place`` reads what is written to ``path``."""
    if not is_folder:
        return _is_same(path, place) or place == path.parent or _matches(path.parts, place.parts)
    if path == place or path in place.parents:
        return True
    return any(_matches((path / name).parts, place.parts) for name in _NAMES[key])


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether the glob ``pattern`` matches the path ``parts``; ``**`` is any number of folders."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[start:], pattern[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
