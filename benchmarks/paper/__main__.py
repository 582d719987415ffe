"""The command line of the study: each command is a module, loaded when it is called.

``register(subparsers)`` of the module adds its parser; the parser's default ``command`` is a function that takes the
parsed arguments and returns the exit code.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Final

from streamad.errors import StreamadError

COMMANDS: Final = {
    "run": ("benchmarks.paper.run", "train and score cells of the study, and store their results"),
    "report": ("benchmarks.paper.report.report", "build docs/model/paper.md from the stored cells"),
    "data": ("benchmarks.paper.data.archives", "build the data sets from the public archives' own files"),
    "figures": ("benchmarks.paper.figures", "draw the figures from stored results"),
}
_INTERRUPTED, _BROKEN_PIPE = 130, 141  # a shell's codes for a process that the signal ended


def main(arguments: list[str] | None = None) -> int:
    """Run the command that ``arguments`` name (default: those of the process) and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper", description=__doc__.splitlines()[0])
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    chosen = next((word for word in words if not word.startswith("-")), None)
    for name, (module, help_line) in COMMANDS.items():
        if name == chosen:
            importlib.import_module(module).register(subparsers)
        else:
            subparsers.add_parser(name, help=help_line)
    parsed = parser.parse_args(words)
    try:
        code = int(parsed.command(parsed))
        sys.stdout.flush()
        return code
    except StreamadError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # the reader has closed; the flush at exit must not fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE


if __name__ == "__main__":
    sys.exit(main())
