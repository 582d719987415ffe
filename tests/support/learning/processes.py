"""The processes of the crash and race tests: ``python -m tests.support.learning.processes MODE FOLDER``.

Children are forked, so that each of many costs milliseconds. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from streamad.errors import RegistryError, StreamadError
from streamad.learn.registry.registry import Registry
from tests.support.learning.plant import load, train, windows_of

KILLED = -signal.SIGKILL


def forked(work: Callable[[], int]) -> int:
    """Start a child that runs ``work`` and exits with what it returns; returns its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(work())
        except BaseException as error:  # noqa: BLE001  # the child must never return into the parent's code
            print(f"child failed: {error!r}", file=sys.stderr, flush=True)
            os._exit(99)
    return pid


def status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_at(count: int, root: Path) -> None:
    """Die by SIGKILL before the ``count``-th touch (open, rename, mkdir, lock, ...) of anything under ``root``."""
    touches = 0
    inside = str(root)

    def hook(event: str, args: tuple[object, ...]) -> None:
        nonlocal touches
        if event == "fcntl.flock" or any(isinstance(arg, str | os.PathLike) and inside in str(arg) for arg in args):
            touches += 1
            if touches == count:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def crash_once(base: Path, root: Path, count: int) -> dict[str, object]:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(base, root)

    def work() -> int:
        kill_at(count, root)
        train(root, data=windows_of(30, seed=7))
        return 0

    code = status(forked(work))
    registry = Registry(root)
    state = {"count": count, "killed": code == KILLED, "code": code, "current": load(root).ref.version}
    state["loadable"] = [load(root, version).ref.version for version in registry.versions("default")]
    state["after"] = train(root, data=windows_of(30, seed=7))
    state["left"] = sorted(
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.name.startswith(".staging") or path.name.endswith(".tmp") or "training/" in str(path.relative_to(root))
    )
    return state


def crash(folder: Path) -> object:
    """Kill a training at every touch of the registry, one after the other, until one survives."""
    base, root = folder / "base", folder / "root"
    train(base)
    states = []
    while not states or states[-1]["killed"]:
        states.append(crash_once(base, root, len(states) + 1))
    return states


def promote(folder: Path) -> object:
    """Let two processes promote different versions over the same champion, at the same moment."""
    rounds = []
    for turn in range(20):
        root = folder / str(turn)
        for seed in range(3):
            train(root, data=windows_of(30, seed=seed), promote=seed == 0)
        ready, go = os.pipe()

        def work(version: str, root: Path = root, ready: int = ready, go: int = go) -> int:
            os.close(go)
            os.read(ready, 1)  # returns when the parent closes its end
            try:
                Registry(root).promote("default", version, expected="0001")
            except RegistryError:
                return 1
            return 0

        pids = {version: forked(lambda version=version: work(version)) for version in ("0002", "0003")}
        os.close(ready)
        os.close(go)
        codes = {version: status(pid) for version, pid in pids.items()}
        rounds.append({"codes": codes, "current": Registry(root).current("default")})
    return rounds


def publish(folder: Path) -> object:
    """Let four processes publish three versions each."""

    def work(writer: int) -> int:
        for turn in range(3):
            train(folder, data=windows_of(30, seed=10 * writer + turn), promote=False)
        return 0

    codes = [status(pid) for pid in [forked(lambda writer=writer: work(writer)) for writer in range(4)]]
    return {"codes": codes, "versions": Registry(folder).versions("default")}


def file_size(folder: Path) -> object:
    """Train under every limit on the size of a file, as on a disk that fills up."""
    train(folder)
    outcomes = []
    for limit in range(0, 6000, 250):

        def work(limit: int = limit) -> int:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            try:
                train(folder, data=windows_of(30, seed=limit + 1), promote=False)
            except StreamadError as error:
                text = str(error)
                return 2 if type(error).__name__ == "OutputError" and "\n" not in text else 3
            return 0

        code = status(forked(work))
        outcomes.append({"limit": limit, "code": code, "versions": Registry(folder).versions("default")})
    versions = [load(folder, version).ref.version for version in Registry(folder).versions("default")]
    return {"outcomes": outcomes, "loadable": versions}


if __name__ == "__main__":
    modes = {"crash": crash, "promote": promote, "publish": publish, "file_size": file_size}
    print(json.dumps(modes[sys.argv[1]](Path(sys.argv[2]))))
