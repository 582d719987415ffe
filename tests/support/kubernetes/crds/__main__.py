"""Writes the schemas of the CRDs in the files that are named."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from tests.support.kubernetes.crds import file_of, strict

for path in map(Path, sys.argv[1:]):
    crd = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
    for version in crd["versions"]:
        if version["storage"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
            place = file_of(f"{crd['group']}/{version['name']}", crd["names"]["kind"])
            place.write_text(json.dumps(schema, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")
