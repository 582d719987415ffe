"""The debts of one partition: attributions are made behind its verdicts and committed with its next progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from streamad.judge.debts import Ledger
from streamad.judge.explainer import Explainer
from streamad.judge.verdicts import unexplained
from streamad.messages import Attribution
from streamad.partition_progress import Debt


class Payments:
    """Pays the debts of a partition, each once: from the commit of its alert to that of its attribution.

    Without an ``explainer`` (nobody wants attributions any more) debts of a former run are paid without reasons.
    ``on_made`` is called whenever an attribution is ready.
    """

    def __init__(
        self, ledger: Ledger, explainer: Explainer | None, on_made: Callable[[asyncio.Task[Any]], None]
    ) -> None:
        self.ledger = ledger
        self._explainer = explainer
        self._on_made = on_made
        self._making: dict[str, tuple[Debt, asyncio.Task[Attribution]]] = {}
        self._ready: list[Attribution] = []

    @property
    def owes(self) -> int:
        """Return how many committed alerts have no attribution that was taken to be committed."""
        return len(self._making)

    @property
    def are_settled(self) -> bool:
        """Return whether no attribution is being made or ready."""
        return not self._making and not self._ready

    @property
    def are_ready(self) -> bool:
        """Return whether an attribution can be committed."""
        return bool(self._ready) or any(task.done() for _, task in self._making.values())

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that make attributions."""
        return [task for _, task in self._making.values()]

    def take_up(self, debts: Iterable[Debt]) -> None:
        """Begin to make the attributions of committed ``debts``."""
        for debt in debts:
            if self._explainer is None:
                self._ready.append(unexplained(debt.alert, "attributions were switched off before it was made"))
                continue
            task = asyncio.create_task(self._explainer.attribution_of(debt))
            task.add_done_callback(self._on_made)
            self._making[debt.alert.alert_id] = debt, task

    def take(self) -> list[Attribution]:
        """Return the attributions that are ready, and forget their debts: they are about to be committed."""
        for name in [name for name, (_, task) in self._making.items() if task.done()]:
            self._ready.append(self._making.pop(name)[1].result())
        ready, self._ready = self._ready, []
        return ready

    def give_up(self, *, why: str | None) -> None:
        """Make no more attributions: the rest stays owed, or ends with the reason ``why``."""
        for name, (debt, task) in list(self._making.items()):
            if task.done():
                continue
            task.cancel()
            del self._making[name]
            if why is not None:
                self._ready.append(unexplained(debt.alert, why))
