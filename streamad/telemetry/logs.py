"""The log of the runtime: structlog events on stderr, as text at a terminal, as JSON elsewhere.

The commands print alerts, summaries and errors themselves.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog

from streamad.safe_text import masked, visible_name

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


class _StderrOfTheMoment:
    """Writes to the current ``sys.stderr``, because progress displays and tests replace it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure_logs(verbosity: int = 0) -> None:
    """Send the log to stderr: warnings; from verbosity 1 the runtime's steps, too; from 2 every commit."""
    is_terminal = sys.stderr.isatty()
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if is_terminal else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _visible if is_terminal else _masked,  # JSON escapes every control by itself
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[min(verbosity, len(_LEVELS) - 1)]),
        logger_factory=lambda *_: structlog.PrintLogger(cast("TextIO", _StderrOfTheMoment())),
        cache_logger_on_first_use=False,
    )


def _masked(_: object, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask the secrets of URLs in every text of a line."""
    return {key: masked(value) if isinstance(value, str) else value for key, value in line.items()}


def _visible(_: object, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask secrets, and show controls as escapes: names and messages come from others."""
    return {key: visible_name(masked(value)) if isinstance(value, str) else value for key, value in line.items()}


def get_logger() -> structlog.typing.FilteringBoundLogger:
    """Return the logger; it shows only warnings if no program configured structlog."""
    if not structlog.is_configured():
        configure_logs()
    return cast("structlog.typing.FilteringBoundLogger", structlog.get_logger())


def get_status_logger() -> structlog.typing.FilteringBoundLogger:
    """Return a logger that shows its lines at any verbosity, such as the state of a long run in intervals."""
    get_logger()
    return cast(
        "structlog.typing.FilteringBoundLogger",
        structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.INFO)),
    )
