"""Judges finished sequences one by one: window, score, p-value, verdict, and for an alert why it was raised."""

from __future__ import annotations

__all__ = ["Judge", "Judgement"]

from dataclasses import dataclass

from streamad.errors import DetectorError, StreamadError
from streamad.ingest.windowing import Unscorable, to_window
from streamad.judge.alerts import make_alert, make_attribution, scored, unscorable
from streamad.judge.attribution import METHOD, channel_shares
from streamad.judge.scoring import MicroBatcher, Scored
from streamad.ports import Clock
from streamad.settings import Settings
from streamad.types import Alert, Attribution, FinishedSequence, OutputRecord, Verdict, Window


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was decided about one sequence."""

    verdict: Verdict
    alert: Alert | None = None
    attribution: Attribution | None = None

    def outputs(self, *, with_verdicts: bool) -> list[OutputRecord]:
        """Return the messages; without a verdicts sink an unscorable verdict goes to the alerts: never silence."""
        key = self.verdict.stream
        records = []
        if with_verdicts:
            records.append(OutputRecord("verdicts", key, self.verdict))
        elif self.verdict.decision == "unscorable":
            records.append(OutputRecord("alerts", key, self.verdict))
        if self.alert is not None:
            records.append(OutputRecord("alerts", key, self.alert))
        if self.attribution is not None:
            records.append(OutputRecord("attributions", key, self.attribution))
        return records


class Judge:
    """Turns finished sequences into judgements with the model in service."""

    def __init__(self, settings: Settings, batcher: MicroBatcher, clock: Clock, *, explain: bool) -> None:
        self._settings = settings
        self._channels = settings.channel_specs
        self._batcher = batcher
        self._clock = clock
        self._explains = explain

    async def judge(self, sequence: FinishedSequence, refused: str | None = None) -> Judgement:
        """Return the judgement of ``sequence``; ``refused`` says why it must not be scored. Raises DetectorError."""
        window = to_window(sequence, self._settings.window, self._channels) if refused is None else Unscorable(refused)
        if isinstance(window, Unscorable):
            return Judgement(unscorable(sequence, window, self._clock.now_us(), self._batcher.model.ref))
        result = await self._batcher.submit(window)
        model = result.model
        verdict = scored(
            sequence,
            result.terms,
            calibration=model.calibration,
            settings=self._settings.alerts,
            model=model.ref,
            now_us=self._clock.now_us(),
        )
        alert = make_alert(verdict, self._settings.alerts)
        if alert is None or not self._explains:
            return Judgement(verdict, alert)
        return Judgement(verdict, alert, await self._explain(alert, window, result))

    async def _explain(self, alert: Alert, window: Window, result: Scored) -> Attribution | None:
        model = result.model
        if model.reference is None:
            return None
        try:
            shares = await self._batcher.run(channel_shares, model.scorer, window, model.reference)
        except StreamadError:
            raise
        except Exception as error:  # the model is foreign code and may fail in any way
            name = f"{model.ref.name} {model.ref.version}"
            raise DetectorError(f"model {name} failed while explaining an alert: {error!r}") from error
        return make_attribution(
            alert,
            result.terms,
            calibration=model.calibration,
            shares=shares,
            channels=self._channels,
            method=METHOD,
        )
