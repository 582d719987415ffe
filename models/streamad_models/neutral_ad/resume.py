"""The file that lets an interrupted training run continue exactly where it was."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from streamad.errors import DetectorError, OutputError
from streamad.system.files import replacing
from streamad.system.opening import open_regular
from streamad.types import WindowSet
from streamad_models.neutral_ad.options import TrainingOptions

_KIND = "streamad neutral_ad training run, format 2"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state of a run after the epochs whose ``losses`` it has; tensors are copies."""

    fingerprint: str
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    generator: Tensor
    best_model: dict[str, Tensor]
    best_epoch: int
    best_loss: float
    losses: list[float]
    duration_s: float


def fingerprint(data: WindowSet, options: TrainingOptions, seed: int, device: torch.device) -> str:
    """Return the sha256 of all that decides a run's result: windows, lengths, settings, seed and kind of device."""
    digest = hashlib.sha256()
    settings = {"options": options.model_dump(mode="json"), "seed": seed, "device": device.type}
    digest.update(json.dumps([settings, list(data.values.shape)], sort_keys=True).encode())
    digest.update(data.values.tobytes())
    digest.update(data.lengths.tobytes())
    return digest.hexdigest()


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Replace ``path`` atomically. Raises OutputError."""
    content = {name: getattr(snapshot, name) for name in Snapshot.__slots__}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, is_state=True) as descriptor, os.fdopen(descriptor, "wb", closefd=False) as stream:
            torch.save({"kind": _KIND, "digest": _digest(content), **content}, stream)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        raise OutputError(f"cannot write the resume file {path}: {error}; free space or name another file") from error


def read_snapshot(path: Path, wanted: str) -> Snapshot | None:
    """Return the run to continue, or None if there is no file or one of another run (which will be replaced).

    Raises DetectorError if the file is no resume file, so that no foreign file is overwritten, or was changed since.
    """
    if not path.exists():
        return None
    try:
        with os.fdopen(open_regular(path), "rb") as stream:  # a FIFO would block
            content = torch.load(stream, map_location="cpu", weights_only=True)
        is_ours = isinstance(content, dict) and content.pop("kind", None) == _KIND
        is_whole = is_ours and content.pop("digest", None) == _digest(content)
        is_ours = is_ours and set(content) == set(Snapshot.__slots__)
    except Exception as error:  # torch's parser lets errors of zip, pickle and codecs through
        raise DetectorError(f"{path} is not a readable resume file: delete it or name another") from error
    if not is_ours:
        raise DetectorError(f"{path} is not a resume file of this detector: delete it or name another")
    if not is_whole:
        raise DetectorError(f"{path} was changed since it was written: delete it or name another")
    return Snapshot(**content) if content["fingerprint"] == wanted else None


def _digest(content: dict[str, Any]) -> str:
    """Return the sha256 of a state: a changed one may load, and fail or train another model only later."""
    digest = hashlib.sha256()
    _add(digest, content)
    return digest.hexdigest()


def _add(digest: hashlib._Hash, value: object) -> None:
    """Add ``value`` with its kind and size, so that no two states have the same bytes."""
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype}{list(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, dict):
        digest.update(f"dict{len(value)}".encode())
        for key, item in value.items():
            _add(digest, key)
            _add(digest, item)
    elif isinstance(value, (list, tuple)):
        digest.update(f"{type(value).__name__}{len(value)}".encode())
        for item in value:
            _add(digest, item)
    else:
        text = repr(value).encode()
        digest.update(f"{type(value).__name__}{len(text)}:".encode() + text)
