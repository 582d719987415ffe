from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from streamad_models.devices import full_precision
from tests.support.waiting import LIMIT_S

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def _reduced() -> Iterator[None]:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


def settings() -> tuple[str, bool]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


def test_products_and_on_cuda_convolutions_have_no_tf32_inside() -> None:
    with full_precision(CUDA):
        assert settings() == ("highest", False)
    assert settings() == ("high", True)
    with full_precision(CPU):
        assert settings() == ("highest", True)
    assert settings() == ("high", True)


def test_a_block_that_fails_restores_the_settings() -> None:
    with pytest.raises(ValueError, match="odd"), full_precision(CUDA):
        raise ValueError("odd")
    assert settings() == ("high", True)


def test_the_last_of_overlapping_blocks_restores_what_the_first_found() -> None:
    first_is_in, second_is_in, first_is_out = threading.Event(), threading.Event(), threading.Event()
    within: list[tuple[str, bool]] = []

    def first() -> None:
        with full_precision(CPU):
            first_is_in.set()
            second_is_in.wait(LIMIT_S)
        first_is_out.set()

    thread = threading.Thread(target=first)
    thread.start()
    first_is_in.wait(LIMIT_S)
    with full_precision(CUDA):
        second_is_in.set()
        first_is_out.wait(LIMIT_S)
        within.append(settings())
    thread.join()
    assert within == [("highest", False)]
    assert settings() == ("high", True)
