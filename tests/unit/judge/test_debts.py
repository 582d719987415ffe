"""What is kept of an alert until its attribution is made, and how much of it at most."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from streamad.judge.explainer import (
    MOST_DEBT_BYTES,
    MOST_DEBTS,
    Ledger,
    LostWindowError,
    debt_of,
    terms_of,
    window_of,
)
from streamad.types import Window
from tests.support.runtime.debts import alert_of

NOISE = np.random.default_rng(0).normal(size=(4, 500_000)).astype(np.float32)  # 8 MB that zlib cannot pack
SMALL = Window(np.ones((2, 3), dtype=np.float32), 2)
TERMS = np.array([1.0, 2.0], dtype=np.float32)


@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 6), st.data())
def test_window_and_terms_come_back_bit_for_bit(
    n_channels: int, length: int, n_terms: int, data: st.DataObject
) -> None:
    numbers = st.floats(width=32, allow_nan=True)
    drawn = data.draw(st.lists(numbers, min_size=n_channels * length, max_size=n_channels * length))
    values = np.array(drawn, dtype=np.float32).reshape(n_channels, length)
    terms = np.array(data.draw(st.lists(numbers, min_size=n_terms, max_size=n_terms)), dtype=np.float32)
    window = Window(values, data.draw(st.integers(1, length)))
    debt = debt_of(alert_of(0), terms, window)
    assert window_of(debt).values.tobytes() == values.tobytes()
    assert window_of(debt).values.shape == values.shape
    assert window_of(debt).length == window.length
    assert terms_of(debt).tobytes() == terms.tobytes()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ({"window": b""}, "gone"),
        ({"window": b"x"}, "damaged"),
        ({"window": zlib.compress(bytes(24))[:-1]}, "damaged"),
        ({"window": zlib.compress(bytes(25))}, "damaged"),
        ({"window": zlib.compress(bytes(10_000_000))}, "damaged"),
        ({"shape": (2, -3)}, "damaged"),
        ({"shape": (10**9, 10**9), "length": 5}, "damaged"),
        ({"length": 0}, "damaged"),
        ({"length": 4}, "damaged"),
    ],
)
def test_a_damaged_window_is_lost_and_nothing_else(damage: dict[str, object], says: str) -> None:
    debt = replace(debt_of(alert_of(0), TERMS, SMALL), **damage)
    with pytest.raises(LostWindowError, match=says):
        window_of(debt)
    assert terms_of(debt).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("terms", [b"", b"abc"])
def test_damaged_terms_are_lost(terms: bytes) -> None:
    with pytest.raises(LostWindowError, match="terms are damaged"):
        terms_of(replace(debt_of(alert_of(0), TERMS, SMALL), terms=terms))


def test_a_partition_owes_at_most_256_debts_and_one_more_once_one_is_paid() -> None:
    ledger = Ledger()
    assert all(ledger.owe(alert_of(number), TERMS, SMALL) is not None for number in range(MOST_DEBTS))
    assert ledger.owe(alert_of(999), TERMS, SMALL) is None
    ledger.paid(alert_of(3).alert_id)
    assert ledger.owe(alert_of(999), TERMS, SMALL) is not None
    assert ledger.owe(alert_of(1000), TERMS, SMALL) is None


def test_a_partition_owes_at_most_32_megabytes() -> None:
    ledger, window = Ledger(), Window(NOISE, 500_000)
    owed = [ledger.owe(alert_of(number), TERMS, window) is not None for number in range(6)]
    packed = len(zlib.compress(NOISE.tobytes(), 1))
    assert owed == [True] * (MOST_DEBT_BYTES // packed) + [False] * (6 - MOST_DEBT_BYTES // packed)
    assert ledger.owe(alert_of(7), TERMS, SMALL) is not None


def test_a_window_above_the_limit_and_a_debt_above_an_items_size_are_not_owed() -> None:
    huge = Window(np.zeros((9, 1_000_000), dtype=np.float32), 5)
    assert Ledger().owe(alert_of(0), TERMS, huge) is None
    assert Ledger(max_item_bytes=2_000).owe(alert_of(0), TERMS, Window(NOISE[:, :1000], 1000)) is None
    assert Ledger(max_item_bytes=20_000).owe(alert_of(0), TERMS, Window(NOISE[:, :1000], 1000)) is not None


def test_debts_of_a_former_run_count_and_an_id_is_owed_once() -> None:
    before = [debt_of(alert_of(number), TERMS, SMALL) for number in range(MOST_DEBTS + 1)]
    ledger = Ledger(before)
    ledger.paid(before[0].alert.alert_id)
    assert ledger.owe(alert_of(999), TERMS, SMALL) is None
    ledger.paid(before[1].alert.alert_id)
    assert ledger.owe(alert_of(5), TERMS, SMALL) is None
    assert ledger.owe(alert_of(999), TERMS, SMALL) is not None
