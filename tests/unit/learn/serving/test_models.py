"""The models that score in a run: those in service, or the versions that are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamad.learn.serving.models import models_at_work
from tests.support.learning.store import NAME, LearningPlant


@pytest.mark.parametrize(
    ("models", "names"),
    [(None, [NAME]), ({"field": "recipe", "values": ["a", "b"]}, [f"{NAME}.a", f"{NAME}.b"])],
)
async def test_a_named_version_scores_whatever_is_in_service(models: Any, names: list[str], tmp_path: Path) -> None:
    plant = LearningPlant(tmp_path, learning=None, models=models)
    for name in names:
        for seed in (0, 1):
            plant.train(seed, name=name)
        assert plant.registry.current(name) == "0002"
    for pinned in ({}, {names[0]: "0001"}):
        batchers = await models_at_work(plant.plant, versions=pinned)
        assert {each.ref.name: each.ref.version for each in batchers.models} == dict.fromkeys(names, "0002") | pinned
        await batchers.close()
