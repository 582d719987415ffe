"""The entry point: ``streamad`` and ``python -m streamad``; Ctrl-C ends it without a traceback, also while it loads."""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit."""
    try:
        from streamad.cli import main as run  # noqa: PLC0415 - seconds, during which Ctrl-C may come

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
