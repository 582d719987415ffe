"""SQLite files of others: what their own statements may call."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from streamad.system.sqlite_files import distrust


def test_a_view_of_the_file_calls_no_function_of_the_program() -> None:
    called = []
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.create_function("act", 0, lambda: called.append(1) or 0)
        connection.execute("CREATE VIEW marks AS SELECT act() AS n")
        distrust(connection)
        with pytest.raises(sqlite3.OperationalError, match="unsafe use of act"):
            connection.execute("SELECT n FROM marks").fetchall()
    assert not called
