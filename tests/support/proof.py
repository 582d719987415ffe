"""The proof of a new version in a fork of a process that has torch imported: the product starts Python anew.

A training through the command line otherwise costs a test two seconds of a core for imports. ``test_proof`` and the
tests that start ``streamad train`` as a process have the product's own.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from streamad.learn.registry.backends import RefusedBackend
from streamad.learn.trainer.proof import LIMIT_S, environment_of, main
from streamad.messages import ModelRef
from streamad.settings.plant_yaml import Settings
from tests.support.forks import fork_server_context, forked


def proved_in_fork(settings: Settings, model: ModelRef, folder: Path) -> tuple[RefusedBackend, ...]:
    """Return the backends that must not serve the sealed version in ``folder``, as ``proved_in_new_process`` does."""
    context = fork_server_context()
    content = pickle.dumps((settings, model, folder.absolute(), LIMIT_S))
    reading, writing = context.Pipe(duplex=False)
    with reading, forked(context) as start:
        process = start(_prove, content, sys.path, environment_of(1), writing)
        writing.close()
        with os.fdopen(os.dup(reading.fileno()), "rb") as output:
            result = output.read()
        process.join()
        assert process.exitcode == 0, f"the proof ended with exit code {process.exitcode}"
    return msgspec.json.decode(result, type=tuple[RefusedBackend, ...])


def _prove(content: bytes, path: list[str], environment: dict[str, str], writing: Connection) -> None:
    import torch  # noqa: PLC0415 - imported before the fork

    torch.set_num_threads(1)
    sys.path[:] = path
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin = io.TextIOWrapper(io.BytesIO(content))
    os.dup2(writing.fileno(), 1)
    main()
