"""The forms of messages that the kill benchmark can send go together."""

from __future__ import annotations

from typing import Any

import pytest

from streamad.testing import ListSource
from tests.support.runtime.pipeline import (
    HOLDING,
    IN_LISTS,
    WHILE,
    in_forms,
    messy_recordings,
    records_of,
    run_pipeline,
    settings_of,
)


@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.parametrize("states", [False, True])
async def test_lists_of_any_form_hold_the_same_samples(holds: bool, states: bool) -> None:
    messages = messy_recordings(5, streams="ab")
    sections: dict[str, Any] = {"channels": HOLDING} if holds else {}
    sections |= {"sequences": {"allowed_lateness": "3s", **WHILE}} if states else {}
    single = records_of(in_forms(messages, 5, holds=holds, states=states))
    listed = records_of(in_forms(messages, 5, holds=holds, states=states, lists=True))
    one = await run_pipeline(ListSource.of({"t/0": single}), settings_of(**sections))
    other = await run_pipeline(ListSource.of({"t/0": listed}), settings_of(**sections, decode=IN_LISTS))
    found, expected = other.pipeline.counters, one.pipeline.counters
    assert found.samples == expected.samples > 0
    assert found.outside == expected.outside
    assert (found.outside > 0) is states
    assert sum(found.sequences.values()) > 5
    assert ("while" in found.sequences) is states
