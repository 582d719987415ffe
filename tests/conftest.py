"""What every test shares: the real recordings, Kafka, and the profiles of the property-based tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import data
from tests.support.kafka.broker import Broker, jars_or_skip, scratch_folder

# A slow machine is no wrong answer: no deadlines. CI draws the same examples every time.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "default")


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
    folder = scratch_folder()
    broker = Broker(folder / "kafka")
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        shutil.rmtree(folder)


@pytest.fixture
def own_broker(kafka_jars: Path) -> Iterator[Callable[..., Broker]]:
    """The function that starts a broker of the test's own, to stop, kill or pause; takes settings to override."""
    folder = scratch_folder()
    brokers: list[Broker] = []

    def start(settings: dict[str, str] | None = None) -> Broker:
        brokers.append(Broker(folder / f"kafka{len(brokers)}", settings))
        brokers[-1].start()
        return brokers[-1]

    try:
        yield start
    finally:
        for broker in brokers:
            broker.kill()
        shutil.rmtree(folder)
