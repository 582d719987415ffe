"""Which model judges what: every rule of ``models``, and names that nothing strange gets into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.ingest.windowing import Unscorable
from streamad.judge.bank import Router, settings_for
from streamad.settings.learning import RoutingSettings
from tests.support.runtime.pipeline import settings_of


def router(**routing: Any) -> Router:
    return Router("press", RoutingSettings(field="recipe", **routing))


def test_without_routing_there_is_one_model_for_all() -> None:
    assert Router("press", None).name_for(("A", "B")) == "press"
    assert Router("press", None).known_names() == ("press",)


@pytest.mark.parametrize(
    ("routing", "routes", "name"),
    [
        ({}, ("A",), "press.A"),
        ({}, (), "press"),
        ({}, ("x" * 58,), "press." + "x" * 58),
        ({"values": ("A",)}, ("A",), "press.A"),
        ({"values": ("A",)}, ("B",), "press.B"),
        ({"values": ("A",), "unknown": "default"}, ("A",), "press.A"),
        ({"values": ("A",), "unknown": "default"}, ("B",), "press"),
        ({"values": ("A",), "unknown": "default"}, ("no name!",), "press"),
        ({"values": ("A",), "unknown": "unscorable"}, ("A",), "press.A"),
        ({"missing": "unscorable"}, ("A",), "press.A"),
    ],
)
def test_a_value_or_its_absence_chooses_the_model(routing: Any, routes: tuple[str, ...], name: str) -> None:
    assert router(**routing).name_for(routes) == name


@pytest.mark.parametrize(
    ("routing", "routes", "why"),
    [
        ({}, ("A", "B"), "two values of recipe: 'A' and 'B'"),
        ({}, ("A", "B", "C"), "two values of recipe: 'A' and 'B'"),
        ({"missing": "unscorable"}, (), "no recipe in its messages (models.missing is unscorable)"),
        (
            {"values": ("A",), "unknown": "unscorable"},
            ("B",),
            "recipe 'B' is not among models.values (models.unknown is unscorable)",
        ),
        ({}, ("x" * 59,), "at most 58 of them"),
    ],
)
def test_routes_without_a_model_are_unscorable_with_a_reason(routing: Any, routes: tuple[str, ...], why: str) -> None:
    found = router(**routing).name_for(routes)
    assert isinstance(found, Unscorable)
    assert why in found.detail


def test_the_page_on_learning_quotes_the_verdicts() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "learning" / "learning.md").read_text(encoding="utf-8")
    strict = Router("press", RoutingSettings(field="recipe", values=("PX-12", "PX-20"), unknown="unscorable"))
    silent = router(missing="unscorable")
    for found in (strict.name_for(("PX-31",)), silent.name_for(()), router().name_for(("PX-12", "PX-31"))):
        assert isinstance(found, Unscorable)
        assert f"nobody: `{found.detail.partition(' (')[0]}`" in page
    assert f"`{router().name_for(('PX-31',))}`, which starts learning" in page


@pytest.mark.parametrize("value", ["..", ".", "../x", "a/b", "a b", "Käse", "a\n", "", "x\\y", ".hidden", "1e+300"])
def test_a_value_that_is_no_plain_name_never_becomes_one(value: str) -> None:
    found = router().name_for((value,))
    assert isinstance(found, Unscorable)
    assert "cannot name a model" in found.detail


@given(st.text(max_size=70), st.text(max_size=70))
def test_two_values_never_share_a_model(one: str, other: str) -> None:
    names = [router().name_for((value,)) for value in (one, other)]
    assert "press" not in names
    if one != other and all(isinstance(name, str) for name in names):
        assert names[0] != names[1]


def test_the_config_names_models_beforehand_and_that_for_all_others_may_never_be_needed() -> None:
    assert router(values=("A", "B")).known_names() == ("press.A", "press.B")
    assert router().known_names() == ()


def test_the_settings_of_one_of_several_models_differ_in_its_name_only() -> None:
    settings = settings_of(models={"field": "recipe"})
    other = settings_for(settings, "default.A")
    assert other.model.name == "default.A"
    assert settings_for(other, settings.model.name) == settings
