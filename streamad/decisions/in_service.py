"""The config in service: what the decision log and an acceptance protocol say of it."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from typing import Any, NamedTuple

from streamad.plant import Plant
from streamad.plugins import without_options
from streamad.system.opening import read_regular

_OF_A_PROCESS = ("instance", "accept_gap")
"""Options of a source by which the workers of one plant differ."""


class InService(NamedTuple):
    """A config: the digest of all its values, that of its file ("" without one), and the release that reads it."""

    digest: str
    file: str
    release: str


def config_of(plant: Plant) -> InService:
    """Return what is in service of ``plant``. Raises OSError if its file is gone, or a pipe, which is read once."""
    file = "" if plant.config is None else hashlib.sha256(read_regular(plant.config)).hexdigest()
    return InService(settings_digest(plant), file, version("streamad-monitor"))


def settings_digest(plant: Plant) -> str:
    """Return the digest of all settings of ``plant``: the same in each of its processes."""
    content: dict[str, Any] = plant.settings.model_dump(mode="json")
    source = content["source"]
    source["url"] = without_options(source["url"], _OF_A_PROCESS)
    for option in _OF_A_PROCESS:
        source["options"].pop(option, None)
    content["metrics"].pop("listen", None)  # a port of its own for each worker
    content["web"].pop("port", None)  # run and web have an option --port
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
