"""The entry point: ``streamad`` and ``python -m streamad``; Ctrl-C ends it with one line, also during import."""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit."""
    try:
        from streamad.cli import main as run  # noqa: PLC0415 - takes seconds, in which Ctrl-C may come

        run()
    except SystemExit as end:
        threads = sys.modules.get("streamad.system.threads")
        if threads is not None and isinstance(end.code, int):
            threads.end_process(end.code)
        raise
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
