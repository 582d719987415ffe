"""What a notice says: JSON for programs, a headline and a text for people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec

from streamad.judge.verdicts import place
from streamad.messages import Alert, Attribution
from streamad.notify.bodies import AlertBody, AlertData, Body, DigestBody, DigestData, DigestItem, TestBody, TestData
from streamad.notify.policy import MOST_STREAMS, Batch
from streamad.pictures.facts import Facts, cut, departure, headline, is_explained, score_line, when
from streamad.safe_text import visible_name

MOST_BYTES = 256_000
"""Longest JSON of a notice; beyond it terms, then whole attributions are left out."""
_NAME = 80
_LEAST_SHARE = 0.05
_MOST_CHANNELS = 5


@dataclass(frozen=True, slots=True)
class Item:
    """An alert with its reasons, None if they did not come in time."""

    alert: Alert
    attribution: Attribution | None

    @property
    def facts(self) -> Facts:
        """Return what the alert says."""
        return Facts.of(self.alert)


@dataclass(frozen=True, slots=True)
class Notice:
    """What a receiver is told: some alerts, of which the first few are in ``items``; a test has none.

    ``link`` is the page's base address, ``picture`` a PNG of the first alert.
    """

    id: str
    plant: str
    receiver: str
    at: datetime
    items: tuple[Item, ...] = ()
    count: int = 0
    n_streams: int = 0
    link: str | None = None
    picture: bytes | None = None

    @classmethod
    def test(cls, plant: str, receiver: str, at: datetime, link: str | None) -> Notice:
        """Return a notice that only says that notices arrive."""
        return cls(f"test-{at:%Y%m%dT%H%M%S%f}", plant, receiver, at, link=link)

    @classmethod
    def of(cls, batch: Batch, items: list[Item], **more: Any) -> Notice:
        """Return the notice of a batch, whose first alerts are ``items``."""
        return cls(batch.id, items=tuple(items), count=batch.count, n_streams=len(batch.streams), **more)

    def link_to(self, item: Item) -> str | None:
        """Return the address of the page of a sequence."""
        return None if self.link is None else f"{self.link}/s/{quote(item.alert.alert_id, safe='')}"

    # --- for programs -----------------------------------------------------------------------------------------------

    def body(self) -> bytes:
        """Return its JSON: ``type``, ``timestamp``, ``data``."""
        content = self._encoded(self.items)
        if len(content) > MOST_BYTES:
            content = self._encoded(tuple(_without_terms(item) for item in self.items))
        if len(content) > MOST_BYTES:
            content = self._encoded(tuple(Item(item.alert, None) for item in self.items))
        return content

    def _encoded(self, items: tuple[Item, ...]) -> bytes:
        about = {"plant": self.plant, "receiver": self.receiver, "headline": self.title()}
        told = [{"alert": i.alert, "attribution": i.attribution, "link": self.link_to(i)} for i in items]
        body: Body
        if not told:
            body = TestBody(timestamp=self.at, data=TestData(**about, link=self.link))
        elif self.count == 1:
            body = AlertBody(timestamp=self.at, data=AlertData(**about, **told[0]))  # type: ignore[arg-type]
        else:
            shown = [DigestItem(**each) for each in told]  # type: ignore[arg-type]
            more = DigestData(**about, count=self.count, streams=self.n_streams, link=self.link, alerts=shown)
            body = DigestBody(timestamp=self.at, data=more)
        return msgspec.json.encode(body)

    # --- for people -------------------------------------------------------------------------------------------------

    def title(self) -> str:
        """Return what happened, on one line."""
        if not self.items:
            return f"streamad {self.plant}: a test, no alert"
        if self.count == 1:
            return f"streamad {self.plant}: {_headline(self.items[0])}"
        more = "more than " if self.n_streams >= MOST_STREAMS else ""
        on = visible_name(cut(self.items[0].alert.stream, _NAME))
        on = on if self.n_streams == 1 else f"{more}{self.n_streams} streams"
        return f"streamad {self.plant}: {self.count} alerts on {on}"

    def text(self) -> str:
        """Return what happened, where, when and why, with links."""
        if not self.items:
            lines = [f"Receiver {self.receiver} of plant {self.plant} gets notices.", *self._page()]
        elif self.count == 1:
            lines = [_headline(self.items[0]), "", *self._lines(self.items[0])]
        else:
            lines = []
            for number, item in enumerate(self.items, start=1):
                lines += [f"{number}. {_headline(item)}", *self._lines(item), ""]
            if (rest := self.count - len(self.items)) > 0:
                lines.append(f"and {rest} more")
            lines += self._page()
        return "\n".join(lines).strip() + "\n"

    def _page(self) -> list[str]:
        return [] if self.link is None else [f"All of them: {self.link}/" if self.items else f"The page: {self.link}/"]

    def _lines(self, item: Item) -> list[str]:
        facts, attribution = item.facts, item.attribution
        lines = [score_line(facts), f"{when(facts)}; ended by {facts.reason}"]
        if attribution is None or not is_explained(attribution):
            lines.append("no reasons yet" if attribution is None else f"not explained: {attribution.detail or '-'}")
        else:
            lines += _reasons(attribution)
        lines.append(f"id {facts.id}")
        lines = [visible_name(line) for line in lines]
        return lines if (link := self.link_to(item)) is None else [*lines, f"Look and judge: {link}"]


def _headline(item: Item) -> str:
    return visible_name(headline(item.facts, item.attribution, _NAME))


def _reasons(attribution: Attribution) -> list[str]:
    lines = []
    large = [each for each in attribution.channels if each.share >= _LEAST_SHARE]
    for share in large[:_MOST_CHANNELS]:
        words = [
            f"{departure(each)} {place(each.start, each.end)}"
            for each in attribution.segments
            if each.channel == share.channel
        ]
        lines.append("  ".join([f"{cut(share.channel, _NAME)} {100 * share.share:.0f} %", *words]))
    lines += [f"nearest normal: {cut(each.sequence, _NAME)}" for each in attribution.nearest[:1]]
    return lines


def _without_terms(item: Item) -> Item:
    if item.attribution is None:
        return item
    return Item(item.alert, msgspec.structs.replace(item.attribution, terms=[]))
