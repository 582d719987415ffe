"""Columns of Parquet as arrays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

SCRIPT = """
import sys, pyarrow.parquet
from streamad_connectors.files.formats.parquet_files.arrays import columns_of
(batch,) = pyarrow.parquet.ParquetFile(sys.argv[1]).iter_batches()
print(columns_of(batch, 0, {"id"}, "UTC").columns[0].texts)
"""


def test_texts_are_read_in_a_process_that_has_imported_nothing_else(tmp_path: Path) -> None:
    """``pyarrow.parquet`` alone brings no ``pyarrow.compute``; the reading process has little else."""
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pa.table({"id": ["B-1", "B-22"]}), path)
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "['B-1', 'B-22']", done.stderr
