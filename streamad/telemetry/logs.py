"""The log: what the runtime does, as structlog events on stderr; readable at a terminal, JSON elsewhere.

Messages for people (alerts, summaries, errors) are printed by the commands; the log is for following and debugging.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO, cast

import structlog

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


class _StderrOfTheMoment:
    """Writes to what stderr is now: progress displays put themselves before it, tests replace it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure_logs(verbosity: int = 0) -> None:
    """Send the log to stderr: warnings only, from 1 on what the runtime does, from 2 on every commit."""
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[min(verbosity, len(_LEVELS) - 1)]),
        logger_factory=lambda *_: structlog.PrintLogger(cast("TextIO", _StderrOfTheMoment())),
        cache_logger_on_first_use=False,
    )


def get_logger() -> structlog.typing.FilteringBoundLogger:
    """Return the logger; where no program configured structlog, only warnings show."""
    if not structlog.is_configured():
        configure_logs()
    return cast("structlog.typing.FilteringBoundLogger", structlog.get_logger())


def get_status_logger() -> structlog.typing.FilteringBoundLogger:
    """Return a logger that shows what it is told at any verbosity: the state of a long run, once in an interval."""
    get_logger()
    return cast(
        "structlog.typing.FilteringBoundLogger",
        structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.INFO)),
    )
