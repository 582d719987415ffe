"""Float32 arithmetic of full precision while a block runs, whatever the process chose."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch

ValueT = TypeVar("ValueT")


class _Switch(Generic[ValueT]):
    """A setting of the process that blocks hold at ``wanted``.

    Blocks of several threads may overlap: the first sets it, the last restores what the first found.
    """

    def __init__(self, wanted: ValueT, read: Callable[[], ValueT], write: Callable[[ValueT], None]) -> None:
        self._wanted, self._read, self._write = wanted, read, write
        self._found = wanted
        self._n_blocks = 0
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            if not self._n_blocks:
                self._found = self._read()
                self._set(self._wanted)
            self._n_blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_blocks -= 1
                if not self._n_blocks:
                    self._set(self._found)

    def _set(self, value: ValueT) -> None:
        if self._found != self._wanted:
            self._write(value)


def _allow_convolutions(is_allowed: bool) -> None:
    torch.backends.cudnn.allow_tf32 = is_allowed


_PRODUCTS = _Switch("highest", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision)
_CONVOLUTIONS = _Switch(False, lambda: torch.backends.cudnn.allow_tf32, _allow_convolutions)


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Switch off TF32 and reduced CPU precision inside.

    On CUDA also for convolutions: cuDNN computes them in TF32 by default, with three digits, whatever the precision of
    products is.
    """
    with _PRODUCTS.held():
        if device.type == "cpu":
            yield
        else:
            with _CONVOLUTIONS.held():
                yield
