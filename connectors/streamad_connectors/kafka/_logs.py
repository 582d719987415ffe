"""What aiokafka logs: into our log where that is asked for, and never a secret."""

from __future__ import annotations

__all__ = ["tame_logs"]

import logging

from streamad.logs import get_logger


class _ToOurLog(logging.Handler):
    """Hands warnings on as information: what matters of them reaches us as errors, which say what to do."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log one line of aiokafka's."""
        get_logger().info("aiokafka", message=record.getMessage().partition("\n")[0])


def _without_requests(record: logging.LogRecord) -> bool:
    # On DEBUG a connection logs every request, passwords and tokens among them.
    return record.levelno > logging.DEBUG


def tame_logs() -> None:
    """Send aiokafka's warnings to our log, and let its connections not log what they send; may be called again."""
    logger = logging.getLogger("aiokafka")
    if not any(isinstance(handler, _ToOurLog) for handler in logger.handlers):
        logger.addHandler(_ToOurLog(logging.WARNING))
    logging.getLogger("aiokafka.conn").addFilter(_without_requests)
