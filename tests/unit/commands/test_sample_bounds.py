"""What init and check read of a recording is bounded in bytes: some KB of a packed file stand for GB."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from streamad.commands.check import sample as check_sample
from streamad.commands.check.sample import read_sample
from streamad.commands.init.finding import find_layout
from streamad.commands.init.reading import sample as init_sample
from streamad.commands.init.reading.sample import read_raw
from streamad.plant import Plant
from streamad.runtime.wiring import source_for
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def test_check_and_init_read_a_bounded_part_of_one_long_text_in_many_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 4_000
    columns = {
        "ts": [1772352000.0 + i for i in range(n)],
        "a": [i % 7 * 1.0 for i in range(n)],
        "note": ["x" * 5_000] * n,
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "day.parquet")
    assert (tmp_path / "day.parquet").stat().st_size < 100_000
    monkeypatch.setattr(check_sample, "MAX_BYTES", 5_000_000)
    monkeypatch.setattr(init_sample, "MAX_BYTES", 5_000_000)
    raw = read_raw(str(tmp_path / "day.parquet"), tmp_path)
    assert not raw.is_complete
    assert raw.n_records < n / 2
    layout = find_layout(raw)
    assert (layout.stream, layout.as_text) == (None, ())  # a text of 5,000 characters is no id
    assert [line.name for line in layout.channels] == ["a"]
    settings = Settings(
        channels=[{"name": "a"}],  # type: ignore[arg-type]
        source={"url": "day.parquet"},  # type: ignore[arg-type]
        decode={"fields": {"time": "ts", "sequence": None, "values": None}, "default_stream": "s"},  # type: ignore[arg-type]
        sequences={"end": ["length"], "length": 10_000},  # type: ignore[arg-type]
    )
    plant = Plant(settings, tmp_path, SystemClock(), tmp_path / "plant.yaml")
    found = asyncio.run(read_sample(plant, source_for(plant)))
    assert not found.is_complete
    assert 0 < found.counters.records < n / 2
