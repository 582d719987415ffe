"""The log: structlog on stderr, readable at a terminal, JSON elsewhere."""

from __future__ import annotations

__all__ = ["configure_logs"]

import logging
import sys

import structlog


def configure_logs(*, verbose: bool) -> None:
    """Send the log to stderr from INFO (``verbose``: DEBUG) up."""
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if verbose else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
