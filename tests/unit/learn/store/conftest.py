from __future__ import annotations

import pytest

from streamad.learn.store import compaction


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Join small files from the eighth on, so that a test needs few flushes."""
    monkeypatch.setattr(compaction, "MAX_FILES", 7)
