"""Messages of the role ``status``, as a worker writes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from streamad.messages import ModelRef, OpenSequence, Running, WorkerStatus, packed_values
from tests.support.web.messages import MODEL, T


def opened(stream: str = "reactor-1", sequence: str = "B-77", n_samples: int = 3, start: datetime = T) -> OpenSequence:
    return OpenSequence(stream=stream, sequence=sequence, start_time=start, n_samples=n_samples)


def status_of(
    instance: str = "line-1", *, open_: Sequence[OpenSequence] = (), models: Sequence[ModelRef] = (MODEL,), **more: Any
) -> WorkerStatus:
    given = {
        "started_at": T, "interval_s": 10.0, "partitions": 2, "lag": 0, "records": 100, "samples": 100,
        "verdicts": {"normal": 5}, "alerts": 1, "dead_letters": 0, "waiting_verdicts": 0, "waiting_attributions": 0,
        "latency_p50_ms": 3.0, "latency_p99_ms": 9.0, "created_at": T,
    }  # fmt: skip
    return WorkerStatus(instance=instance, models=list(models), n_open=len(open_), open=list(open_), **(given | more))


def curve_of(one: OpenSequence, values: Sequence[Sequence[float]], instance: str = "line-1", **more: Any) -> Running:
    array = np.array(values, np.float32)
    given = {
        "channels": ["temp_c"], "units": ["K"], "seconds": [float(i) for i in range(array.shape[1])], "created_at": T,
        "n_samples": one.n_samples,
    }  # fmt: skip
    return Running(
        instance=instance, stream=one.stream, sequence=one.sequence, start_time=one.start_time,
        values=packed_values(array), **(given | more),
    )  # fmt: skip
