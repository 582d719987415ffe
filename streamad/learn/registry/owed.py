"""Which versions of a model are still needed: for attributions of alerts that are owed, and for looks at sequences."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from streamad.errors import SourceError, StreamadError
from streamad.messages import ModelRef
from streamad.plant import Plant
from streamad.plugins import connect_source, failure_of, load, split_url
from streamad.ports import OwingSource, TransactionalSource
from streamad.system.saved_progress import read_checkpoint

_LONGEST_S = 60.0


async def owed_versions(plant: Plant, name: str) -> frozenset[str]:
    """Return the versions of the model ``name`` that alerts and running sequences of this plant still need.

    Raises StreamadError if that cannot be known, such as without a broker; it takes a minute at most.
    """
    try:
        async with asyncio.timeout(_LONGEST_S):
            owed = await _owed(plant)
    except StreamadError:
        raise
    except TimeoutError:
        raise SourceError(f"{plant.settings.source.url}: no answer within {_LONGEST_S:g} s") from None
    except Exception as error:  # a third party's source
        raise SourceError(failure_of(error)) from error
    return frozenset(model.version for model in owed if model.name == name)


async def _owed(plant: Plant) -> Collection[ModelRef]:
    settings = plant.settings
    kind = load("sources", split_url(settings.source.url)[0])
    if not hasattr(kind, "committer"):  # it keeps no progress: the local checkpoint does
        return _owed_locally(plant)
    source = connect_source(settings.source.url, settings.source.options, plant.context)
    try:
        if isinstance(source, OwingSource):
            return await source.owed_models()
        if isinstance(source, TransactionalSource):
            raise SourceError(f"the source {settings.source.url} cannot say which attributions are open")
        return _owed_locally(plant)
    finally:
        await source.close()


def _owed_locally(plant: Plant) -> Collection[ModelRef]:
    checkpoint = plant.settings.run.checkpoint
    if checkpoint is None:
        return ()
    progress = read_checkpoint(plant.base_dir / checkpoint).progress.values()
    return {model for each in progress for model in each.needed_models}
