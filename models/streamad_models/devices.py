"""Sets up a device: full float32 precision, so that all score alike, and on a GPU batches that are launched whole.

A call launches 200 to 400 kernels, 2 to 5 ms of work for the CPU whatever the batch is (docs/internals/gpu.md);
computing a small batch takes 0.6 to 1.2 ms. So all kernels of a call are recorded once and launched together.
Legend: B windows, C channels, L window length, K terms.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from streamad.types import FloatArray, IntArray

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


SIZES = (1, 2, 4, 8, 16, 32, 64)
"""The batch sizes that are recorded; a batch of another size is computed as one of the next larger size."""
GPU_TURN = threading.Lock()
"""Held by whoever uses the GPU to score: nothing else may reach it while kernels are recorded."""


@dataclass(frozen=True, slots=True, eq=False)
class _Recording:
    graph: torch.cuda.CUDAGraph
    terms: Tensor


class GraphedModel:
    """The recorded calls of a model of pure windows, one for each size in ``SIZES`` of at most ``limit`` windows.

    Windows go through fixed buffers. Behind a small batch lie windows of an earlier one, which are computed again and
    dropped. A size that cannot be recorded (too little memory) ends the recording; ``most`` windows are scored at once,
    in two pieces if need be: above that, launching kernels one by one is as fast.
    """

    def __init__(
        self,
        model: Callable[[Tensor, Tensor], Tensor],
        device: torch.device,
        shape: tuple[int, int],
        n_terms: int,
        *,
        limit: int,
    ) -> None:
        self._model, self._device = model, device
        sizes = [size for size in SIZES if size <= limit]
        n, n_steps = sizes[-1], shape[1]
        self._host_BCL, self._host_B = torch.zeros(n, *shape).pin_memory(), torch.full((n,), n_steps).pin_memory()
        self._windows_BCL, self._lengths_B = self._host_BCL.to(device), self._host_B.to(device)
        self._terms_BK = torch.zeros(n, n_terms).pin_memory()
        self._recordings: dict[int, _Recording] = {}
        for size in sizes:
            try:
                self._recordings[size] = self._record(size)
            except RuntimeError:  # also of memory; the model itself has run before
                break
        self._largest = max(self._recordings, default=0)
        self.most = 2 * self._largest

    @torch.inference_mode()
    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return the terms [B, K] of at least one window and at most ``most``."""
        step = self._largest
        with GPU_TURN, torch.cuda.device(self._device):
            parts = [
                self._piece(windows[at : at + step], lengths[at : at + step]) for at in range(0, len(windows), step)
            ]
        return np.concatenate(parts)

    def _piece(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        n = len(windows)
        recording = self._recordings[SIZES[bisect_left(SIZES, n)]]
        self._host_BCL.numpy()[:n] = windows
        self._host_B.numpy()[:n] = lengths
        self._windows_BCL[:n].copy_(self._host_BCL[:n], non_blocking=True)
        self._lengths_B[:n].copy_(self._host_B[:n], non_blocking=True)
        recording.graph.replay()
        self._terms_BK[:n].copy_(recording.terms[:n], non_blocking=True)
        torch.cuda.current_stream().synchronize()
        terms: FloatArray = self._terms_BK.numpy()[:n].copy()
        return terms

    @torch.inference_mode()
    def _record(self, size: int) -> _Recording:
        windows_BCL, lengths_B = self._windows_BCL[:size], self._lengths_B[:size]
        graph, pool = torch.cuda.CUDAGraph(), self._pool()
        with GPU_TURN, torch.cuda.device(self._device), full_precision(self._device):
            stream = _recording_stream(self._device)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # libraries load and choose their kernels in a first call
                self._model(windows_BCL, lengths_B)
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                terms_BK = self._model(windows_BCL, lengths_B)
        return _Recording(graph, terms_BK)

    def _pool(self) -> Any:
        """Return the memory that the sizes share, for one of them runs at a time; None: the first makes it."""
        return next((recording.graph.pool() for recording in self._recordings.values()), None)


@cache
def _recording_stream(device: torch.device) -> Any:
    """Return the stream of all recordings: cuBLAS keeps memory for each stream, for good."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
