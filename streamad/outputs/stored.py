"""Models and inlier stores, as people name them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from streamad.errors import StoreError, UsageError
from streamad.learn import parts
from streamad.learn.parts import store_for, stored_names
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import StoredSequence
from streamad.messages import SHARES, Share
from streamad.plant import Plant
from streamad.settings.learning import LearningSettings
from streamad.types import from_us


class StoreView(NamedTuple):
    """A stored sequence, the model whose store it is in, and its share there."""

    model: str
    share: Share
    sequence: StoredSequence


def learning_of(plant: Plant) -> LearningSettings:
    """Return the config's learning section. Raises UsageError if it has none."""
    if plant.settings.learning is None:
        raise UsageError(
            "the config has no section learning: without it nothing is stored and nothing retrains: write learning: {}"
        )
    return plant.settings.learning


def known_models(plant: Plant) -> tuple[str, ...]:
    """Return the models that the config names, that have versions or that have stored sequences, in this order."""
    stored: set[str] = set()
    with suppress(StoreError):  # whatever needs the store reports that it cannot be read
        stored = stored_names(plant)
    return parts.known_models(plant, stored)


def stored_models(plant: Plant, model: str | None = None) -> tuple[str, ...]:
    """Return those of ``some_models`` that have an inlier store. Raises UsageError, StoreError."""
    stored = stored_names(plant)
    return tuple(name for name in some_models(plant, model) if name in stored)


def some_models(plant: Plant, model: str | None) -> tuple[str, ...]:
    """Return the model that ``--model`` names, or all of the plant's. Raises UsageError for an unknown one."""
    names = known_models(plant)
    if model is None:
        return names
    named = next((name for name in (model, f"{plant.settings.model.name}.{model}") if name in names), None)
    if named is None:
        raise UsageError(f"--model {model}: there is no such model (known: {', '.join(names) or 'none'})")
    return (named,)


def one_model(plant: Plant, model: str | None) -> str:
    """Return the model that ``--model`` names, or the only one there is. Raises UsageError."""
    names = some_models(plant, model)
    if len(names) != 1:
        raise UsageError(f"there are several models, name one with --model: {', '.join(names)}")
    return names[0]


def open_store(plant: Plant, model: str) -> InlierStore:
    """Return the store of a model, opened to be read. Raises UsageError, StoreError."""
    learning_of(plant)
    store = store_for(plant, model)
    store.open_to_read()
    return store


def stored_sequences(plant: Plant, models: tuple[str, ...]) -> Iterator[StoreView]:
    """Yield all that the stores of ``models`` hold. Raises StoreError."""
    for model in models:
        yield from sequences_of(model, open_store(plant, model))


def sequences_of(model: str, store: InlierStore) -> Iterator[StoreView]:
    """Yield all that the opened ``store`` of ``model`` holds. Raises StoreError."""
    for share in SHARES:
        yield from (StoreView(model, share, sequence) for sequence in store.read(share))


def time_text(time_us: int) -> str:
    """Return a UTC time for people, to the second."""
    return f"{from_us(time_us):%Y-%m-%d %H:%M:%S}"
