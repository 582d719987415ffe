"""A topic for each test."""

from __future__ import annotations

import pytest

from tests.support.kafka.broker import Broker, new_topic


@pytest.fixture
async def topic(kafka: Broker) -> str:
    """A new topic of one partition."""
    return await new_topic(kafka)
