"""Finds out whether a sample is an export out of order, which its reader should sort."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from streamad.commands.init.layout import Layout
from streamad.commands.init.reading.sample import RawSample, read_raw
from streamad.commands.init.rhythm import Pauses
from streamad.ingest.record_times import times_for
from streamad.plugins import gives_files
from streamad.settings.plant_yaml import Settings

_HOUR_US = 3_600_000_000
_FEW = 5  # usual steps: from the end of one hour to the beginning of the same one
_MANY = 10  # usual steps: a message on a network is seldom that late


def without_set_back(layout: Layout, pauses: Pauses) -> Pauses:
    """Return the pauses without lateness where times go back by an hour as clocks do, and note it.

    The plant's zone tells the two hours apart; sorting, or waiting for an hour, would mix them.
    """
    is_guess = layout.time.zone is not None and not layout.zone_is_given
    if not is_guess or not 0 <= _HOUR_US - pauses.lateness_us <= _FEW * pauses.period_us:
        return pauses
    layout.remedy = "give the plant's zone with --timezone, for example Europe/Berlin"
    layout.notes.append(
        f"times in {layout.time.path} go back by an hour, as where clocks are set back; until the zone is known, the "
        f"second hour is late: set decode.timezone, or {layout.remedy}"
    )
    return replace(pauses, lateness_us=0)


def read_sorted(home: Path, raw: RawSample, layout: Layout, pauses: Pauses, settings: Settings) -> RawSample | None:
    """Return the sample read with ``source.options.sort`` if it is far out of order, and note it; else None.

    Files without times of their own, and those whose times begin anew in each sequence, are left as they are.
    """
    times = times_for(settings)
    is_late = pauses.lateness_us > _MANY * pauses.period_us
    if not gives_files(settings.source.url) or raw.native or layout.is_relative or not is_late or times is None:
        return None
    layout.notes.append(
        "the sample is out of order in time: its reader sorts each file (source.options.sort), so leave that out for a "
        "live source"
    )
    options = {**settings.source.options, "sort": True}
    return read_raw(settings.source.url, home, options, ids_from=layout.ids_from, times=times, schemas=raw.schemas)
