from __future__ import annotations

import pytest

from streamad import Model
from tests.support.proof import proved_in_fork
from tests.support.walks import fitted, walks


@pytest.fixture(autouse=True)
def _proves_in_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad.notebook.fitting.proved_in_new_process", proved_in_fork)


@pytest.fixture(scope="session")
def model() -> Model:
    """A model of two channels in K and bar, fitted on 60 walks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamad.notebook.fitting.proved_in_new_process", proved_in_fork)
        return fitted(walks(60), channels=["temp", "pressure"], units={"temp": "K", "pressure": "bar"})
