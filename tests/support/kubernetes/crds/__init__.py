"""The schemas of custom resources: ``schema_of``, and ``python -m tests.support.kubernetes.crds CRD.yaml ...``."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
_LEFT_OUT = {"default", "description", "format"}


def file_of(api_version: str, kind: str) -> Path:
    """Return the place of the schema of a kind."""
    return FOLDER / f"{api_version.replace('/', '_')}_{kind}.json"


@cache
def schema_of(api_version: str, kind: str) -> Any:
    """Return the schema of a kind; raises FileNotFoundError if there is none."""
    return json.loads(file_of(api_version, kind).read_text(encoding="utf-8"))


def strict(schema: Any) -> Any:
    """Return a part of a CRD's schema as JSON Schema, without texts and defaults; unknown keys are refused."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items() if key not in _LEFT_OUT and not key.startswith("x-")}
    if "properties" in schema:
        made["properties"] = {name: strict(each) for name, each in schema["properties"].items()}
        if schema.get("type") == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
            made.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("anyOf", None)
        made["type"] = ["integer", "string"]
    return made
