"""A pytest plugin for trials: a failing example stays as it was found, because making it smaller takes minutes."""

from __future__ import annotations

from hypothesis import Phase, settings


def pytest_configure() -> None:
    """Replace the profile that the tests' conftest has loaded; test modules are imported after this."""
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", settings.get_profile("ci"), phases=phases)
    settings.load_profile("mutants")
