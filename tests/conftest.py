"""What every test shares: the real recordings, Kafka, and the profiles of the property-based tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import data
from tests.support.examples import IS_CI, examples
from tests.support.kafka.broker import Broker, jars_or_skip, new_broker
from tests.support.memory_guard import watch_workers
from tests.support.objects import bucket, s3_endpoint
from tests.support.proof import proved_in_fork

__all__ = ["bucket", "s3_endpoint"]

# A slow machine is no wrong answer: no deadlines. CI draws the same examples every time.
settings.register_profile("default", deadline=None, max_examples=examples(100))
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if IS_CI else "default")

_PRIORITY = str(Path(__file__).parent / "support" / "priority")
if _PRIORITY not in os.environ.get("PYTHONPATH", ""):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_PRIORITY, os.environ.get("PYTHONPATH")]))
os.environ["TESTS_KEEP_PRIORITY"] = "1"
# Numba compiles aeon's kernels for 40 s of a core in a new environment; on the tests' few windows Python is quicker.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # else it tells its makers of each use


def pytest_configure(config: pytest.Config) -> None:
    """Watch the memory of pytest-xdist's workers."""
    if not hasattr(config, "workerinput"):
        watch_workers()


@pytest.fixture(scope="session", autouse=True)
def _quick_proof() -> Iterator[None]:
    """A training by the command line in this process proves its version in a fork (``tests/support/proof.py``)."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("streamad.commands.train.proved_in_new_process", proved_in_fork)
        yield


@pytest.fixture(scope="session")
def data_file() -> Callable[[str], Path]:
    """The function that finds a real recording by name, or skips the test."""
    return data.data_file


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder of Kafka's jars; a machine that cannot have them skips the test, but fails it in CI."""
    return jars_or_skip()


@pytest.fixture(scope="session")
def kafka(kafka_jars: Path) -> Iterator[Broker]:
    """The broker that all tests share: give topics, groups and ids unique names, and do not stop it."""
    # Nothing kills it, so no start waits for this session to end; on a busy machine it may wait for a core for seconds.
    with new_broker({"broker.session.timeout.ms": "30000"}) as broker:
        yield broker


@pytest.fixture(scope="session")
def _second_kafka(kafka_jars: Path) -> Iterator[Broker]:
    with new_broker() as broker:
        yield broker


@pytest.fixture
def unstable_kafka(_second_kafka: Broker) -> Iterator[Broker]:
    """The broker that tests stop, kill and freeze; each finds it running. Give topics, groups and ids unique names."""
    _second_kafka.recover()
    yield _second_kafka
    _second_kafka.resume()


@pytest.fixture
def own_broker(kafka_jars: Path) -> Iterator[Callable[[dict[str, str]], Broker]]:
    """The function that starts a broker of the test's own with other settings."""
    with ExitStack() as stack:
        yield lambda settings: stack.enter_context(new_broker(settings))
