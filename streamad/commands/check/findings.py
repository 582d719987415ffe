"""The findings of a check: one line each with its outcome, and advice unless it is ok."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamad.commands.shared.plants import located, name_config
from streamad.errors import ConfigError, StreamadError

Outcome = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check; ``advice`` is what the user can do."""

    check: str
    outcome: Outcome
    message: str
    advice: str = ""


def ok(check: str, message: str) -> Finding:
    """Return a finding that needs nothing."""
    return Finding(check, "ok", message)


def warning(check: str, message: str, advice: str) -> Finding:
    """Return a finding of something that works, but most likely not as meant."""
    return Finding(check, "warning", message, advice)


def failed(check: str, message: str, advice: str = "") -> Finding:
    """Return a finding with which ``streamad run`` would fail or judge nothing."""
    return Finding(check, "failed", message, advice)


def failure(check: str, error: StreamadError) -> list[Finding]:
    """Return an error as findings, one for each problem of a config."""
    if isinstance(error, ConfigError):
        return [failed(check, str(problem)) for problem in located(error.problems)]
    return [failed(check, name_config(str(error)))]
