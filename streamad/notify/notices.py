"""What a notice says: JSON for programs, a headline and a text for people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec

from streamad.judge.verdicts import place
from streamad.language import percent
from streamad.messages import Alert, Attribution, ChannelSegment
from streamad.notify.bodies import (
    AlertBody,
    AlertData,
    Body,
    DigestBody,
    DigestData,
    DigestItem,
    DigestWarning,
    TestBody,
    TestData,
    WarningBody,
    WarningData,
)
from streamad.notify.policy import MOST_STREAMS, Batch, Told, id_of
from streamad.pictures.facts import Facts, cut, departure, headline, is_explained, score_line, when
from streamad.pictures.warned import span_of, warned_headline, warned_line, warned_when
from streamad.safe_text import visible_name

MOST_BYTES = 256_000
"""Longest JSON of a notice; beyond it terms, then whole attributions are left out."""
_NAME = 80
_LEAST_SHARE = 0.05
_MOST_CHANNELS = 5


@dataclass(frozen=True, slots=True)
class Item:
    """An alert or a warning with its reasons, None if they did not come in time."""

    message: Told
    attribution: Attribution | None

    def headline(self) -> str:
        """Return what happened, on one line."""
        if isinstance(self.message, Alert):
            return headline(Facts.of(self.message), self.attribution, _NAME)
        return f"warning: {warned_headline(self.message, self.attribution, _NAME)}"

    def facts(self) -> list[str]:
        """Return what was found, and when."""
        if isinstance(self.message, Alert):
            facts = Facts.of(self.message)
            return [score_line(facts), f"{when(facts)}; ended by {facts.reason}"]
        return [warned_line(self.message), warned_when(self.message)]

    def span(self, segment: ChannelSegment) -> str:
        """Return when a channel departs."""
        if isinstance(self.message, Alert):
            return place(segment.start, segment.end)
        return span_of(self.message, segment)


@dataclass(frozen=True, slots=True)
class Notice:
    """What a receiver is told: alerts and warnings, of which the first few are in ``items``; a test has none.

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
    n_warnings: int = 0

    @classmethod
    def test(cls, plant: str, receiver: str, at: datetime, link: str | None) -> Notice:
        """Return a notice that only says that notices arrive."""
        return cls(f"test-{at:%Y%m%dT%H%M%S%f}", plant, receiver, at, link=link)

    @classmethod
    def of(cls, batch: Batch, items: list[Item], **more: Any) -> Notice:
        """Return the notice of a batch, whose first alerts are ``items``."""
        n, n_warnings, n_streams = batch.count, batch.n_warnings, len(batch.streams)
        return cls(batch.id, items=tuple(items), count=n, n_warnings=n_warnings, n_streams=n_streams, **more)

    def link_to(self, item: Item) -> str | None:
        """Return the address of the page of a sequence."""
        return None if self.link is None else f"{self.link}/s/{quote(id_of(item.message), safe='')}"

    # --- for programs -----------------------------------------------------------------------------------------------

    def body(self) -> bytes:
        """Return its JSON: ``type``, ``timestamp``, ``data``."""
        content = self._encoded(self.items)
        if len(content) > MOST_BYTES:
            content = self._encoded(tuple(_without_terms(item) for item in self.items))
        if len(content) > MOST_BYTES:
            content = self._encoded(tuple(Item(item.message, None) for item in self.items))
        return content

    def _encoded(self, items: tuple[Item, ...]) -> bytes:
        about = {"plant": self.plant, "receiver": self.receiver, "headline": self.title()}
        body: Body
        if not items:
            body = TestBody(timestamp=self.at, data=TestData(**about, link=self.link))
        elif self.count > 1:
            body = DigestBody(timestamp=self.at, data=self._digest(items, about))
        else:
            (item,) = items
            more: dict[str, Any] = {**about, "attribution": item.attribution, "link": self.link_to(item)}
            if isinstance(item.message, Alert):
                body = AlertBody(timestamp=self.at, data=AlertData(alert=item.message, **more))
            else:
                body = WarningBody(timestamp=self.at, data=WarningData(warning=item.message, **more))
        return msgspec.json.encode(body)

    def _digest(self, items: tuple[Item, ...], about: dict[str, str]) -> DigestData:
        alerts: list[DigestItem] = []
        warnings: list[DigestWarning] = []
        for item in items:
            link, message = self.link_to(item), item.message
            if isinstance(message, Alert):
                alerts.append(DigestItem(alert=message, attribution=item.attribution, link=link))
            else:
                warnings.append(DigestWarning(warning=message, attribution=item.attribution, link=link))
        return DigestData(
            **about,
            count=self.count,
            n_warnings=self.n_warnings,
            streams=self.n_streams,
            link=self.link,
            alerts=alerts,
            warnings=warnings,
        )

    # --- for people -------------------------------------------------------------------------------------------------

    def title(self) -> str:
        """Return what happened, on one line."""
        if not self.items:
            return f"streamad {self.plant}: a test, no alert"
        if self.count == 1:
            return f"streamad {self.plant}: {_headline(self.items[0])}"
        more = "more than " if self.n_streams >= MOST_STREAMS else ""
        on = visible_name(cut(self.items[0].message.stream, _NAME))
        on = on if self.n_streams == 1 else f"{more}{self.n_streams} streams"
        return f"streamad {self.plant}: {self._counted()} on {on}"

    def _counted(self) -> str:
        parts = [(self.count - self.n_warnings, "alert"), (self.n_warnings, "warning")]
        return " and ".join(f"{n} {name}{'s' if n > 1 else ''}" for n, name in parts if n)

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
        attribution, lines = item.attribution, item.facts()
        if attribution is None or not is_explained(attribution):
            lines.append("no reasons yet" if attribution is None else f"not explained: {attribution.detail or '-'}")
        else:
            lines += _reasons(item, attribution)
        lines.append(f"id {id_of(item.message)}")
        lines = [visible_name(line) for line in lines]
        return lines if (link := self.link_to(item)) is None else [*lines, f"Look and judge: {link}"]


def _headline(item: Item) -> str:
    return visible_name(item.headline())


def _reasons(item: Item, attribution: Attribution) -> list[str]:
    lines = []
    large = [each for each in attribution.channels if each.share >= _LEAST_SHARE]
    for share in large[:_MOST_CHANNELS]:
        words = [
            f"{departure(each)} {item.span(each)}" for each in attribution.segments if each.channel == share.channel
        ]
        lines.append("  ".join([f"{cut(share.channel, _NAME)} {percent(share.share)}", *words]))
    lines += [f"nearest normal: {cut(each.sequence, _NAME)}" for each in attribution.nearest[:1]]
    return lines


def _without_terms(item: Item) -> Item:
    if item.attribution is None:
        return item
    return Item(item.message, msgspec.structs.replace(item.attribution, terms=[]))
