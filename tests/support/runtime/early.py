"""A model with looks at running sequences, to which those around 1 are usual."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from streamad.judge.early.model import EarlyModel, Look, LookForm, early_model
from streamad.judge.scoring import ModelInService
from streamad.messages import ModelRef
from tests.support.runtime.pipeline import CHANNELS, SquareScorer, model_of

AGES = (2, 4, 6)
RATE, LONGEST = 0.02, 7


def looks(ages: Iterable[int] = AGES, still: Mapping[int, dict[int, float]] = MappingProxyType({})) -> EarlyModel:
    """Looks to which a sequence around 1 is usual: its mean squares have the logarithm log 3.

    ``still`` are the readings of the channels that stood still in training up to an age.
    """
    forms = [LookForm(n_points=age, median=float(np.log(3)), spread=1.0, still=still.get(age, {})) for age in ages]
    of = [Look(form, SquareScorer((len(CHANNELS) - len(form.still), form.n_points))) for form in forms]
    return early_model(of, np.random.default_rng(0).uniform(0, 1, 199), RATE, usual=8, longest=LONGEST)


def model(version: str = "0001", early: EarlyModel | None = None) -> ModelInService:
    """A model with looks."""
    return replace(model_of(), ref=ModelRef("test", version), early=looks() if early is None else early)
