"""Warnings for people: the line at the terminal, their worth by labels, and what check says of looks."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from streamad.commands.check.models import looks_of
from streamad.commands.shared.figures.labels import Label, LabelOptions, Labels
from streamad.commands.shared.figures.warnings import print_expected, warning_figures
from streamad.commands.shared.monitor import attribution_line, warning_line
from streamad.judge.attribution import METHOD, Explanation, Segment
from streamad.judge.verdicts import make_early_attribution, span_text
from streamad.learn.registry.manifest import DetectorRecord, EarlyExpectation, EarlyRecord
from streamad.messages import Attribution, ChannelShare, EarlyWarning, ModelRef, Verdict, WarningRef
from streamad.notify.notices import Item, Notice
from streamad.pictures.warned import warned_finding
from streamad.settings.plant_yaml import Settings
from streamad.testing import ListSource
from streamad.types import ChannelSpec
from tests.support.runtime.early import looks, model
from tests.support.runtime.pipeline import model_of, settings_of

T0 = datetime(2026, 3, 1, 8, tzinfo=UTC)
MODEL = ModelRef("default", "0001")
MANY = [{"name": f"c{number}"} for number in range(100)]


def warning(sequence: str, hours: float, age: float) -> EarlyWarning:
    return EarlyWarning(
        warning_id=f"w-{sequence}",
        stream="r",
        sequence=sequence,
        start_time=T0,
        time=T0 + timedelta(hours=hours),
        n_points=10,
        age=age,
        look=3,
        score=5.0,
        p_value=0.01,
        false_alarm_rate=0.01,
        tail="empirical",
        model=MODEL,
        created_at=T0,
    )


def verdict(sequence: str, hours: float, warned: EarlyWarning | None = None) -> Verdict:
    return Verdict(
        verdict_id=f"v-{sequence}",
        stream="r",
        sequence=sequence,
        decision="normal",
        reason="marker",
        start_time=T0,
        end_time=T0 + timedelta(hours=hours),
        n_samples=20,
        warning=None if warned is None else WarningRef(warned.warning_id, warned.age),
        created_at=T0,
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (40, "40 s"),
        (192, "3 min 12 s"),
        (22_200, "6 h 10 min"),
        (86_400, "1 d"),
        (90_061, "1 d 1 h"),
    ],
)
def test_a_stretch_of_time_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert span_text(seconds) == text.replace(" ", "\u00a0")


def test_the_line_says_the_age_in_both_ways_and_why() -> None:
    why = Attribution(
        alert_id="w-1", stream="r", sequence="1", score=5.0, terms=[], dominating_transformation=0,
        channels=[ChannelShare(channel="temp_c", unit="K", share=0.93)], method="channel-replacement",
        tail="empirical", model=MODEL, created_at=T0,
    )  # fmt: skip
    line = str(warning_line(warning("1", 6.1667, 0.54), why))
    assert "WARN r 1 at 54\u00a0% of the usual length (6\u00a0h\u00a010\u00a0min)" in line
    assert "p 0.0100" in line
    assert "because of temp_c 93\u00a0%" in line


@pytest.mark.parametrize(
    ("start", "end", "said"), [(0.5, 1.0, "from 5 h to 10 h"), (0.9, 0.9, "at 9 h"), (0.0, 0.01, "from 0 s to 6 min")]
)
def test_reasons_of_a_warning_count_the_time_since_the_start_everywhere(start: float, end: float, said: str) -> None:
    """A share of what was seen would read as one of the sequence, whose end nobody knows."""
    told, segment = warning("1", 10.0, 0.54), Segment(0, start, end, "above", 3.1)
    found = Explanation(np.ones(1), (), (segment,))
    why = make_early_attribution(told, found, [ChannelSpec("temp_c", "K")], METHOD)
    said = re.sub(r"(\d) ", "\\1\u00a0", said)
    text = f"temp_c 3.1 K above the band {said}"
    assert [each.text for each in why.segments] == [text]
    assert f"  {text}  " in str(warning_line(told, why))
    assert f"  {text}  " in str(attribution_line(why)), "as alerts tail prints it"
    assert warned_finding(told, why) == text
    notice = Notice("w-1", "p", "desk", T0, (Item(told, why),), count=1, n_warnings=1)
    assert f"temp_c 100\u00a0%  3.1 K above the band {said}" in notice.text()


def test_the_worth_of_warnings_counts_faults_before_their_end_and_false_ones() -> None:
    early, at_end, false = warning("early", 5, 0.5), warning("at-end", 10, 1.0), warning("false", 4, 0.4)
    verdicts = [
        verdict("early", 9, early),
        verdict("at-end", 10, at_end),
        verdict("missed", 10),
        verdict("false", 10, false),
        *(verdict(f"n-{number}", 10) for number in range(3)),
        verdict("unlabelled", 10, warning("unlabelled", 1, 0.1)),
    ]
    of = {"early": True, "at-end": True, "missed": True, "false": False, "n-0": False, "n-1": False, "n-2": False}
    labels = Labels({(None, name): Label(str(int(odd)), odd) for name, odd in of.items()})
    found = warning_figures([early, at_end, false], verdicts, labels)
    assert (found.n_normal, found.normal_share) == (4, 0.25)
    assert (found.n_faulty, found.faults_before_end_share) == (3, pytest.approx(1 / 3))
    assert (found.median_lead_s, found.median_lead_share) == (4 * 3600, pytest.approx(0.4))
    assert found.normal_interval is not None
    assert found.normal_interval[0] < 0.25 < found.normal_interval[1]


def test_the_delay_is_that_since_the_onset_where_labels_know_one(tmp_path: Path) -> None:
    def seconds(hours: float) -> str:
        return str((T0 + timedelta(hours=hours)).timestamp())

    raised = [warning(name, 5, 0.5) for name in ("a", "b", "c", "d", "e")]
    onsets = {"a": seconds(4), "b": seconds(2), "c": seconds(6), "d": seconds(11), "e": ""}
    lines = ["sequence,label,onset", *(f"{name},1,{onset}" for name, onset in onsets.items()), "n,0,"]
    (tmp_path / "truth.csv").write_text("\n".join(lines) + "\n")
    plant = settings_of()
    labels = LabelOptions(str(tmp_path / "truth.csv")).read(ListSource.of({}), plant.decode)
    assert labels is not None
    found = warning_figures(raised, [verdict(each.sequence, 10, each) for each in raised], labels)
    assert (found.n_faulty, found.faults_before_end_share) == (5, 1.0)
    assert (found.n_before_onset, found.median_delay_s) == (1, 2 * 3600)
    assert found.median_delay_share == pytest.approx(0.2)


def test_sequences_without_a_score_count_neither_as_normal_nor_as_faults() -> None:
    lost = warning("lost", 4, 0.4)
    verdicts = [verdict("n-0", 10), verdict("f-0", 10), verdict("lost", 10, lost), verdict("f-lost", 10)]
    verdicts[2:] = [msgspec.structs.replace(each, decision="unscorable") for each in verdicts[2:]]
    of = {"n-0": False, "f-0": True, "lost": False, "f-lost": True}
    labels = Labels({(None, name): Label(str(int(odd)), odd) for name, odd in of.items()})
    found = warning_figures([lost], verdicts, labels)
    assert (found.n_normal, found.normal_share, found.n_faulty) == (1, 0.0, 1)
    assert (found.n_unscorable, found.n_unscorable_warned) == (2, 1)


def early_settings(rate: float) -> Settings:
    return settings_of(alerts={"early": {"false_alarm_rate": rate}})


@pytest.mark.parametrize(
    ("settings", "service", "expected"),
    [
        (settings_of(), model(), []),
        (early_settings(0.02), model_of(), ["trained without them"]),
        (
            early_settings(0.02),
            model(early=looks()),
            ["25\u00a0% to 75\u00a0% of the usual length; 199 sequences"],
        ),
        (early_settings(0.001), model(early=looks()), ["199 sequences cannot certify 0.001"]),
        (early_settings(0.02), model(early=replace(looks(), usual=30)), ["has 30 points: the window holds 16"]),
    ],
)
def test_check_says_whether_the_version_looks_and_what_calibrates_it(
    settings: Settings, service: Any, expected: list[str]
) -> None:
    found = looks_of(settings, service)
    assert len(found) == len(expected)
    assert all(text in each.message for each, text in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        ({"learning": {}, "window": {"length": 65_536}, "channels": MANY}, "take up to 75 MiB, a learner reads 64"),
        ({"alerts": {"early": {"looks": ["30m"]}}}, "need a grid"),
        ({"alerts": {"early": {"looks": ["1h", "30m"]}}, "window": {"resample": {"period": "1m"}}}, "must rise"),
    ],
)
def test_what_looks_cannot_be_is_refused_with_what_to_write(sections: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        settings_of(**{"alerts": {"early": {}}, **sections})


def test_train_prints_what_is_warned_of_by_age(capsys: pytest.CaptureFixture[str]) -> None:
    expected = EarlyExpectation(
        rate=0.01, n_faults=180, n_bases=10, begun=(0.2, 0.6, 1.0), warned=(0.0, 0.3, 0.7), interval=(0.6, 0.8)
    )
    forms = tuple(look.form for look in looks().looks)
    print_expected(EarlyRecord(detector=DetectorRecord("mean", {}), looks=forms, usual=8, expected=expected))
    said = capsys.readouterr().out.replace("\u00a0", " ")
    assert "70 % of 180 injected faults" in said
    assert "90 % interval 60 % to 80 %" in said
    rows = [line.split() for line in said.splitlines()]
    assert ["age", "25", "%", "50", "%", "75", "%"] in rows
    assert ["warned", "of", "0", "%", "30", "%", "70", "%"] in rows
