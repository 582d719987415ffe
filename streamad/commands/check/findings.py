"""What a check found: one line with its outcome, and what to do where it is not ok."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamad.commands.shared.plants import located, name_config
from streamad.errors import ConfigError, StreamadError

Outcome = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check; ``advice`` says what to do about it."""

    check: str
    outcome: Outcome
    message: str
    advice: str = ""


def ok(check: str, message: str) -> Finding:
    """Return that all is well."""
    return Finding(check, "ok", message)


def warning(check: str, message: str, advice: str) -> Finding:
    """Return that it works, but most likely not as meant."""
    return Finding(check, "warning", message, advice)


def failed(check: str, message: str, advice: str = "") -> Finding:
    """Return that ``streamad run`` would fail or judge nothing."""
    return Finding(check, "failed", message, advice)


def failure(check: str, error: StreamadError) -> list[Finding]:
    """Return an error as findings, one for each problem of a config."""
    if isinstance(error, ConfigError):
        return [failed(check, str(problem)) for problem in located(error.problems)]
    return [failed(check, name_config(str(error)))]
