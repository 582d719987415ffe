"""The micro-batcher: order, company, back-pressure, swaps, failures; time moves only by hand."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from streamad.errors import DetectorError
from streamad.judge.calibration import Calibration
from streamad.judge.scoring import NO_MODEL_YET, MicroBatcher, ModelInService
from streamad.messages import ModelRef
from streamad.plugins import ContainedError
from streamad.settings.plant_yaml import RunSettings
from streamad.testing import ManualClock
from streamad.types import Window
from tests.support.runtime.pipeline import steps
from tests.support.waiting import LIMIT_S

SHAPE = (2, 4)
TERMS = Calibration.from_terms(np.array([[1.0, 2.0]], dtype=np.float32))


class SumScorer:
    """Terms = (sum of the values, length), times ``factor``; may be held at a gate, and keeps what it was given."""

    window_shape = SHAPE
    n_terms = 2

    def __init__(self, factor=1.0, held=False):
        self.factor = factor
        self.batches = []
        self.threads = set()
        self.entered = threading.Event()
        self.gate = threading.Event()
        if not held:
            self.gate.set()

    def score(self, windows, lengths):
        self.threads.add(threading.get_ident())
        self.batches.append([float(x) for x in windows[:, 0, 0]])
        self.entered.set()
        assert self.gate.wait(LIMIT_S)
        if (windows[:, 0, 0] == 13).any():
            raise RuntimeError("13 brings bad luck")
        return (self.factor * np.stack([windows.sum(axis=(1, 2)), lengths], axis=1)).astype(np.float32)


def model(scorer, version="0001"):
    return ModelInService(ModelRef("default", version), scorer, TERMS)


def window(number, shape=SHAPE):
    values = np.zeros(shape, dtype=np.float32)
    values[0, 0] = number
    return Window(values, 1)


def batcher(scorer, clock=None, windows=3, wait="50ms", **more):
    return MicroBatcher(
        model(scorer), clock or ManualClock(), RunSettings(batch_windows=windows, batch_wait=wait), **more
    )


async def submitted(under_test, *numbers):
    tasks = [asyncio.create_task(under_test.submit(window(number))) for number in numbers]
    await steps()
    return tasks


async def test_full_batch_is_scored_at_once_in_order_of_submission():
    scorer = SumScorer()
    under_test = batcher(scorer)
    results = await asyncio.gather(*(under_test.submit(window(n)) for n in range(7, 13)))
    assert [result.terms.tolist() for result in results] == [[n, 1] for n in range(7, 13)]
    assert scorer.batches == [[7, 8, 9], [10, 11, 12]]
    await under_test.close()


async def test_a_lone_window_waits_for_company_exactly_as_long_as_configured():
    clock, scorer = ManualClock(), SumScorer()
    under_test = batcher(scorer, clock)
    (task,) = await submitted(under_test, 1)
    clock.advance(0.049_999)
    await steps()
    assert scorer.batches == []
    clock.advance(0.000_001)
    assert (await task).terms.tolist() == [1, 1]
    await under_test.close()


async def test_the_wait_counts_from_the_first_window_not_from_the_last():
    clock, scorer = ManualClock(), SumScorer()
    under_test = batcher(scorer, clock)
    (first,) = await submitted(under_test, 1)
    clock.advance(0.040)
    (second,) = await submitted(under_test, 2)
    clock.advance(0.010)
    await asyncio.gather(first, second)
    assert scorer.batches == [[1, 2]]
    await under_test.close()


async def test_flush_ends_the_wait_of_those_present_only():
    scorer = SumScorer()
    under_test = batcher(scorer)
    tasks = await submitted(under_test, 1, 2)
    under_test.flush()
    await asyncio.gather(*tasks)
    (late,) = await submitted(under_test, 3)
    assert scorer.batches == [[1, 2]]
    await under_test.close()
    assert (await late).terms.tolist() == [3, 1]


async def test_flush_of_nothing_is_forgotten():
    scorer = SumScorer()
    under_test = batcher(scorer)
    under_test.flush()
    await steps()
    await submitted(under_test, 1)
    assert scorer.batches == []
    await under_test.close()


async def test_the_event_loop_runs_on_while_the_model_computes():
    scorer = SumScorer(held=True)
    under_test = batcher(scorer, windows=1)
    task = asyncio.create_task(under_test.submit(window(5)))
    assert await asyncio.to_thread(scorer.entered.wait, 10)
    assert not task.done()
    scorer.gate.set()
    await task
    assert scorer.threads.isdisjoint({threading.get_ident()})
    await under_test.close()


async def test_at_most_capacity_windows_are_taken_and_the_rest_follow_in_order():
    clock, scorer = ManualClock(), SumScorer(held=True)
    under_test = batcher(scorer, clock, windows=2, capacity=3)
    tasks = await submitted(under_test, 1, 2, 3, 4, 5)
    assert await asyncio.to_thread(scorer.entered.wait, 10)
    await steps()
    under_test.flush()  # of the window that waits: two are in the model, two are held back
    scorer.gate.set()
    assert [(await task).terms[0] for task in tasks] == [1, 2, 3, 4, 5]
    assert scorer.batches == [[1, 2], [3], [4, 5]]
    await under_test.close()


async def test_a_failing_model_fails_its_batch_with_a_clear_error_and_works_on():
    scorer = SumScorer()
    under_test = batcher(scorer, windows=2)
    bad = await submitted(under_test, 13, 14)
    found = await asyncio.gather(*bad, return_exceptions=True)
    assert [type(error) for error in found] == [DetectorError, DetectorError]
    assert "model default 0001 failed: RuntimeError('13 brings bad luck')" in str(found[0])
    assert [r.terms[0] for r in await asyncio.gather(*(under_test.submit(window(n)) for n in (1, 2)))] == [1, 2]
    await under_test.close()


class Own(BaseException):
    """A class of a plug-in's own that no ``except Exception`` catches."""


class Odd(SumScorer):
    """Raises ``error`` for the window 13."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def score(self, windows, lengths):
        if (windows[:, 0, 0] == 13).any():
            raise self.error
        return super().score(windows, lengths)


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        GeneratorExit("x"),
        asyncio.CancelledError("x"),
        StopIteration("x"),
        StopAsyncIteration(),
        Own("x"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_model_raises_nobody_waits_for_ever(error):
    under_test = batcher(Odd(error), windows=2, capacity=2)
    waiting = await submitted(under_test, 13, 14, 1, 2)
    async with asyncio.timeout(LIMIT_S):
        found = await asyncio.gather(*waiting, return_exceptions=True)
        await under_test.close()
    assert [type(each) for each in found[:2]] == [DetectorError, DetectorError]
    assert f"model default 0001 failed: {type(error).__name__}" in str(found[0])
    assert [each.terms[0] for each in found[2:]] == [1, 2]


async def test_what_a_model_raises_while_explaining_reaches_the_caller():
    def leave():
        raise asyncio.CancelledError("x")

    under_test = batcher(SumScorer())
    with pytest.raises(ContainedError, match="CancelledError"):
        await under_test.run(leave)
    await under_test.close()


def test_a_keyboard_interrupt_in_a_model_ends_the_run_and_all_that_wait():
    found = []

    async def run():
        under_test = batcher(Odd(KeyboardInterrupt()), windows=1, capacity=1)
        waiting = [asyncio.create_task(under_test.submit(window(number))) for number in (13, 1)]
        try:
            await asyncio.sleep(10)
        finally:
            found.extend(await asyncio.gather(*waiting, return_exceptions=True))
            await under_test.close()
            with pytest.raises(DetectorError, match="closed"):
                await under_test.submit(window(2))

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run())
    assert len(found) == 2


async def test_a_window_of_another_shape_is_refused_clearly():
    under_test = batcher(SumScorer(), windows=1)
    with pytest.raises(DetectorError, match=r"a window is \(3, 4\), but model default takes \(2, 4\)"):
        await under_test.submit(window(1, shape=(3, 4)))
    await under_test.close()


async def test_terms_of_another_shape_are_refused():
    class Three(SumScorer):
        n_terms = 3

    under_test = batcher(Three(), windows=1)
    with pytest.raises(DetectorError, match=r"gave terms \(1, 2\) for 1 windows"):
        await under_test.submit(window(1))
    await under_test.close()


async def test_swap_comes_between_two_batches_and_results_name_their_model():
    old, new = SumScorer(held=True), SumScorer(factor=10)
    under_test = batcher(old, windows=2)
    tasks = [asyncio.create_task(under_test.submit(window(n))) for n in (1, 2, 3, 4)]
    assert await asyncio.to_thread(old.entered.wait, 10)
    swap = asyncio.create_task(under_test.swap(model(new, "0002")))
    await steps()
    assert not swap.done()
    old.gate.set()
    results = await asyncio.gather(*tasks)
    await swap
    assert [(r.model.ref.version, r.terms[0]) for r in results] == [
        ("0001", 1),
        ("0001", 2),
        ("0002", 30),
        ("0002", 40),
    ]
    assert under_test.model.ref.version == "0002"
    await under_test.close()


async def test_close_scores_what_was_submitted_and_refuses_more():
    scorer = SumScorer()
    under_test = batcher(scorer, windows=2, capacity=2)
    tasks = await submitted(under_test, 1)
    tasks += [asyncio.create_task(under_test.submit(window(n))) for n in (2, 3, 4)]
    await asyncio.sleep(0)
    await under_test.close()
    assert [task.result().terms[0] for task in tasks] == [1, 2, 3, 4]
    with pytest.raises(DetectorError, match="closed"):
        await under_test.submit(window(5))
    await under_test.close()


async def test_close_without_any_submit():
    await batcher(SumScorer()).close()


async def test_a_cancelled_submit_wants_no_score_and_gives_its_room_back():
    clock, scorer = ManualClock(), SumScorer()
    under_test = batcher(scorer, clock, windows=2, capacity=2)
    (one,) = await submitted(under_test, 1)
    one.cancel()
    tasks = await submitted(under_test, 2, 3)
    clock.advance(0.05)
    assert [result.terms[0] for result in await asyncio.gather(*tasks)] == [2, 3]
    assert [number for batch in scorer.batches for number in batch] == [2, 3]
    await under_test.close()


async def test_run_shares_the_models_thread():
    scorer = SumScorer()
    under_test = batcher(scorer, windows=1)
    await under_test.submit(window(1))
    assert {await under_test.run(threading.get_ident)} == scorer.threads
    with pytest.raises(ZeroDivisionError):
        await under_test.run(divmod, 1, 0)
    await under_test.close()


# --- before the first model ------------------------------------------------------------------------------------------


def without_model(**more):
    return MicroBatcher(None, ManualClock(), RunSettings(batch_windows=2, batch_wait="50ms"), name="squash", **more)


async def test_without_a_model_nothing_is_scored_and_nothing_waits():
    under_test = without_model(capacity=1)
    assert [await under_test.submit(window(n)) for n in (1, 2, 3)] == [None, None, None]
    assert (under_test.model, under_test.name, under_test.label) == (None, "squash", "squash (learning)")
    assert under_test.learning() == NO_MODEL_YET
    await under_test.close()
    with pytest.raises(DetectorError, match="closed"):
        await under_test.submit(window(4))


async def test_a_first_model_scores_what_comes_after_it_and_nothing_that_came_before():
    scorer = SumScorer()
    under_test = without_model()
    answers = []
    for number in range(1, 11):
        if number == 6:
            swapping = asyncio.create_task(under_test.swap(model(scorer, "0001")))
        answers.append(asyncio.create_task(under_test.submit(window(number))))
        await steps()
    await swapping
    await under_test.close()
    versions = [scored and scored.model.ref.version for scored in await asyncio.gather(*answers)]
    n_learning = versions.index("0001")
    assert n_learning in (5, 6)
    assert versions == [None] * n_learning + ["0001"] * (10 - n_learning)
    assert [number for batch in scorer.batches for number in batch] == list(range(n_learning + 1, 11))


async def test_batchers_that_share_a_thread_score_in_it_and_leave_it_to_its_owner():
    with ThreadPoolExecutor(max_workers=1) as thread:
        first, second = SumScorer(), SumScorer()
        under_test = [batcher(scorer, windows=1, thread=thread) for scorer in (first, second)]
        await asyncio.gather(*(each.submit(window(1)) for each in under_test))
        await under_test[0].close()
        assert (await under_test[1].submit(window(2))).terms.tolist() == [2, 1]
        await under_test[1].close()
        assert first.threads == second.threads == {thread.submit(threading.get_ident).result()}


async def test_a_model_that_hangs_can_be_abandoned_and_nothing_waits_for_it() -> None:
    scorer = SumScorer(held=True)
    hanging = batcher(scorer, wait=0)
    waiting = asyncio.create_task(hanging.submit(window(1)))
    try:
        await asyncio.to_thread(scorer.entered.wait, 10)
        hanging.abandon()
        async with asyncio.timeout(LIMIT_S):
            await hanging.close()
        with pytest.raises(DetectorError, match="closed"):
            await hanging.submit(window(2))
        assert not waiting.done()
    finally:
        scorer.gate.set()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
