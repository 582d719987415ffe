"""The words for a warning of a running sequence."""

from __future__ import annotations

from datetime import datetime

from streamad.judge.verdicts import p_text, phrase_of, span_text, stretch
from streamad.language import gettext, moment, numeral, percent
from streamad.messages import NO_METHOD, Attribution, ChannelSegment, EarlyWarning
from streamad.pictures.facts import MARKS, cut, elapsed, is_counted, shares_of


def warned_headline(warning: EarlyWarning, attribution: Attribution | None, most: int | None = None) -> str:
    """Return in one sentence which sequence still runs, at which age, and why; names are cut to ``most`` characters."""
    stream, sequence = (cut(name, most or len(name)) for name in (warning.stream, warning.sequence))
    said = gettext(
        "%(stream)s %(sequence)s leaves the normal course at %(age)s",
        stream=stream, sequence=sequence, age=age_of(warning),
    )  # fmt: skip
    why = warned_finding(warning, attribution, most)
    return f"{said}: {why}" if why else said


def warned_finding(warning: EarlyWarning, attribution: Attribution | None, most: int | None = None) -> str:
    """Return why: the first segment, else what else the attribution says, else nothing."""
    if attribution is None or attribution.method == NO_METHOD:
        return ""
    if attribution.segments:
        first = attribution.segments[0]
        name = cut(first.channel, most or len(first.channel))
        return f"{phrase_of(name, first.unit, first.size, first.direction)} {span_of(warning, first)}"
    return attribution.detail or shares_of(attribution, most)


def age_of(warning: EarlyWarning) -> str:
    """Return the age at the warning, such as "54 % of the usual length (6 h 10 min)"."""
    since_s = (warning.time - warning.start_time).total_seconds()
    return gettext("%(age)s of the usual length (%(span)s)", age=percent(warning.age), span=span_text(since_s))


def lead_of(warning: EarlyWarning, end_time: datetime) -> str:
    """Return the time from a warning to the end of its sequence, "" if it came at the end."""
    lead_s = (end_time - warning.time).total_seconds()
    return span_text(lead_s) if lead_s > 0 else ""


def age_and_lead(warning: EarlyWarning, end_time: datetime) -> str:
    """Return the age at the warning, and how long before its end that was."""
    lead = lead_of(warning, end_time)
    return gettext("%(age)s, %(lead)s before its end", age=age_of(warning), lead=lead) if lead else age_of(warning)


def span_of(warning: EarlyWarning, segment: ChannelSegment) -> str:
    """Return when a channel departs, since the start."""
    return stretch(warning.start_time, segment.start_time, segment.end_time)


def warned_line(warning: EarlyWarning) -> str:
    """Return p-value, rate and model in words."""
    rate = numeral(f"{warning.false_alarm_rate:g}")
    limit = (
        gettext("(warning at %(rate)s or less, extrapolated)", rate=rate)
        if warning.tail == "extrapolated"
        else gettext("(warning at %(rate)s or less)", rate=rate)
    )
    look = gettext(
        "look %(number)s of model %(name)s %(version)s",
        number=warning.look, name=warning.model.name, version=warning.model.version,
    )  # fmt: skip
    sign = MARKS["shape"] + " " + gettext("WARNING")
    return "   ".join((sign, f"p {p_text(warning.p_value)} {limit}", look))


def warned_when(warning: EarlyWarning) -> str:
    """Return what was seen, in words."""
    start, at = warning.start_time, warning.time
    if is_counted(start):
        first, last = elapsed(start), elapsed(at)
        return gettext(
            "seen from %(first)s to %(last)s since the start of its clock; its verdict follows", first=first, last=last
        )
    first, last = moment(start, is_zoned=False), moment(at)
    if first.partition(" ")[0] == last.partition(" ")[0]:
        last = last.partition(" ")[2]
    return gettext("seen from %(first)s to %(last)s; its verdict follows at its end", first=first, last=last)
