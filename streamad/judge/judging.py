"""Judges finished sequences one by one: window, score, p-value, verdict, and what an alert owes."""

from __future__ import annotations

import asyncio

import msgspec

from streamad.ingest.windowing import Unscorable, judged_window
from streamad.judge.bank import Batchers
from streamad.judge.early.looking import Looking, Seen
from streamad.judge.explainer import Explainer, Ledger
from streamad.judge.scoring import MicroBatcher, Scored
from streamad.judge.verdicts import learning, make_alert, scored, unscorable
from streamad.messages import Alert, Attribution, OutputRecord, Verdict
from streamad.messages import Window as WindowMessage
from streamad.partition_progress import Debt, LooksTaken
from streamad.ports import Clock
from streamad.settings.plant_yaml import Settings
from streamad.types import FinishedSequence, Window


class JudgedSequence(msgspec.Struct, frozen=True, eq=False):
    """A sequence's verdict and alert, by the model ``model_name`` ("" if no model was chosen).

    An alert that is explained has a ``debt``, or the ``attribution`` that it had to wait for. ``window`` is in
    engineering units, and None for an unscorable sequence. ``trained_model``: the sequence trained or calibrated the
    model. ``seen``: what its last looks have found, whose messages come before its own. ``digest`` is that of the
    version that scored it.
    """

    verdict: Verdict
    alert: Alert | None = None
    attribution: Attribution | None = None
    debt: Debt | None = None
    window: Window | None = None
    model_name: str = ""
    trained_model: bool = False
    seen: Seen | None = None
    digest: str = ""

    def outputs(self, window: WindowMessage | None = None, *, with_verdicts: bool) -> list[OutputRecord]:
        """Return the messages, the record of its ``window`` among them.

        Without a verdicts sink an unscorable verdict goes to the alerts, so that it is seen.
        """
        key = self.verdict.stream
        records = [] if self.seen is None else [*self.seen.outputs]
        if with_verdicts:
            records.append(OutputRecord("verdicts", key, self.verdict))
        elif self.verdict.decision == "unscorable":
            records.append(OutputRecord("alerts", key, self.verdict))
        if self.alert is not None:
            records.append(OutputRecord("alerts", key, self.alert))
        if window is not None:
            records.append(OutputRecord("windows", key, window))
        if self.attribution is not None:
            records.append(OutputRecord("attributions", key, self.attribution))
        return records


class Judge:
    """Judges finished sequences, each with the model in service that ``batchers`` choose for it.

    ``explainer`` makes the attributions of alerts; without it there are none. ``looking`` takes the looks at a
    sequence that were not taken while it ran, if looks are wanted.
    """

    def __init__(
        self,
        settings: Settings,
        batchers: Batchers,
        clock: Clock,
        explainer: Explainer | None,
        looking: Looking | None = None,
    ) -> None:
        self._settings = settings
        self._channels = settings.channel_specs
        self._batchers = batchers
        self._clock = clock
        self._explainer = explainer
        self._looking = looking

    async def judge(
        self, sequence: FinishedSequence, ledger: Ledger, refused: str | None = None, looks: LooksTaken | None = None
    ) -> JudgedSequence:
        """Return ``sequence`` judged; ``refused`` is the reason if it must not be scored.

        The attribution of an alert is owed to the partition's ``ledger``; if that has no room, the alert waits for it.
        ``looks`` were taken at it while it ran; those that are left are taken now. They change nothing of the verdict
        but that it names a warning. Raises DetectorError.
        """
        if self._looking is None or refused is not None:
            return _naming(await self._judged(sequence, ledger, refused), looks, None)
        # Beside the looks: the window must be submitted in this task's first step, before what waits is flushed.
        left = asyncio.ensure_future(self._looks_left(self._looking, sequence, looks))
        try:
            judged, seen = await self._judged(sequence, ledger, refused), await left
            if seen is not None and judged.alert is None:  # nothing else says why it was warned of
                seen = await self._looking.explained(seen)
            return _naming(judged, looks, seen)
        finally:
            left.cancel()
            await asyncio.gather(left, return_exceptions=True)

    async def _looks_left(self, looking: Looking, sequence: FinishedSequence, looks: LooksTaken | None) -> Seen | None:
        batcher = await self._batchers.batcher_for(sequence.routes)
        return None if isinstance(batcher, Unscorable) else await looking.finish(sequence, looks, batcher)

    async def _judged(self, sequence: FinishedSequence, ledger: Ledger, refused: str | None) -> JudgedSequence:
        window = judged_window(sequence, self._settings, self._channels) if refused is None else Unscorable(refused)
        batcher = await self._batchers.batcher_for(sequence.routes)
        if isinstance(batcher, Unscorable):
            return JudgedSequence(unscorable(sequence, batcher, self._clock.now_us()))
        if isinstance(window, Unscorable):
            return self._unscorable(sequence, window, batcher)
        result = await batcher.submit(window)
        if result is None:
            verdict = learning(sequence, window, batcher.learning(), self._clock.now_us())
            return JudgedSequence(verdict, window=window, model_name=batcher.name)
        return await self._scored(sequence, window, batcher, result, ledger)

    def _unscorable(self, sequence: FinishedSequence, why: Unscorable, batcher: MicroBatcher) -> JudgedSequence:
        model = batcher.model.ref if batcher.model is not None else None
        return JudgedSequence(unscorable(sequence, why, self._clock.now_us(), model), model_name=batcher.name)

    async def _scored(
        self, sequence: FinishedSequence, window: Window, batcher: MicroBatcher, result: Scored, ledger: Ledger
    ) -> JudgedSequence:
        model = result.model
        verdict = scored(
            sequence,
            window,
            result.terms,
            calibration=model.calibration,
            settings=self._settings.alerts,
            model=model.ref,
            now_us=self._clock.now_us(),
            found=result.moments,
        )
        if verdict.decision == "unscorable":
            return JudgedSequence(verdict, model_name=batcher.name)
        alert = make_alert(verdict, self._settings.alerts)
        attribution = debt = None
        if alert is not None and self._explainer is not None:
            debt = ledger.owe(alert, result.terms, window)
            if debt is None:
                attribution = await self._explainer.attribution(alert, result.terms, window)
        knows = model.knows(verdict)
        return JudgedSequence(verdict, alert, attribution, debt, window, batcher.name, knows, digest=model.digest)


def _naming(judged: JudgedSequence, looks: LooksTaken | None, seen: Seen | None) -> JudgedSequence:
    """Return ``judged`` with what looks have ``seen`` at its end; its verdict names the warning, if there was one."""
    looks = looks if seen is None else seen.looks
    if looks is None or looks.warning is None:
        return judged if seen is None else msgspec.structs.replace(judged, seen=seen)
    return msgspec.structs.replace(
        judged, verdict=msgspec.structs.replace(judged.verdict, warning=looks.warning), seen=seen
    )
