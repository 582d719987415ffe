"""``streamad explain``: why an alert was raised, asked afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from streamad.commands.explain.finding import Findings, Found, checked_id, find, judged_after
from streamad.commands.explain.words import as_json, print_case
from streamad.commands.shared.console import ConfigOption, out, print_json, printed, run_async
from streamad.commands.shared.plants import check_out, load_plant, load_whole_plant
from streamad.errors import SourceError, UsageError
from streamad.ingest.windowing import Unscorable
from streamad.messages import Alert, Attribution, Verdict
from streamad.outputs.cases import Case, Normals, courses_of_message, courses_of_window
from streamad.outputs.reading import place_of
from streamad.pictures.drawing import FORMATS, Format, check_extra, drawn
from streamad.pictures.facts import Facts, is_explained
from streamad.plant import Plant
from streamad.system.files import write_atomically
from streamad.types import Window


def explain(
    sequence_id: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="The alert's, verdict's or warning's id, or at least its first six hex digits."
        ),
    ],
    *,
    config: ConfigOption = Path("plant.yaml"),
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw a picture, too: FILE.png, FILE.svg or FILE.pdf."),
    ] = None,
    recording: Annotated[
        str | None,
        typer.Option(
            "--recording",
            metavar="FILE",
            help="Recording (path or URL) that holds the sequence, if the outputs lack its window or its reasons.",
        ),
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(help="With --recording: the model version that judges it anew, instead of the alert's."),
    ] = None,
    as_one_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Explain an alert afterwards: which channel, when, by how much, against what, and draw it.

    The id is at the end of each alert's line. The plant's outputs have alert, verdict, reasons and, with sinks.windows,
    the judged readings. If they lack any of it, --recording cuts the sequence from a recording as run would, and the
    version that raised the alert explains it anew. The notes say what is missing, and what to do.

    The picture has the channels with the largest shares over the normal band (median, 5 to 95 %, lowest to highest),
    where they depart, and where the score lies among those of the calibration. It needs the extra plots (matplotlib).

    Examples: streamad explain e9e8fde8 --plot why.png; streamad explain e9e8fde8 --recording live/recordings.jsonl
    """
    beginning = checked_id(sequence_id)
    if version is not None and recording is None:
        raise UsageError("--version judges the sequence anew, which needs its recording: add --recording FILE")
    kind = None if plot is None else format_of(plot)
    plant = load_plant(config) if recording is None else load_whole_plant(config)
    if plot is not None:
        check_extra()
        check_out(plant, plot, is_recording=False, also_read=recording, option="--plot")
    asked = _Asked(plant, beginning, recording, version)
    case, missing = asked.answer()
    normal = Normals(plant).of(case.facts)
    scores = case.scores(normal)
    if normal.missing is not None and case.facts.score is not None:
        missing.append(normal.missing)
    picture = case.picture(normal) if plot is not None else None
    if plot is not None and kind is not None and picture is not None:
        write_atomically(plot, drawn(picture, kind))
    if plot is not None and picture is None:
        missing = [each for each in missing if each != asked.why_no_window(case.facts)]  # the error says so
    if as_one_json:
        drawn_to = None if picture is None else str(plot)
        messages = {"alert": asked.alert, "verdict": asked.verdict, "plot": drawn_to, "made_anew": asked.is_anew}
        print_json(as_json(case, scores, missing, **messages))
    else:
        print_case(case, scores, missing)
        if picture is not None:
            out.print(f"picture  {printed(str(plot))}")
    if plot is not None and picture is None:
        raise SourceError(f"no picture: {asked.why_no_window(case.facts)}")


def format_of(path: Path) -> Format:
    """Return the format that the suffix of ``path`` means. Raises UsageError."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UsageError(f"--plot {path}: a picture is a .png, .svg or .pdf file")
    return kind


@dataclass(slots=True)
class _Asked:
    """The question about one sequence, and what was found: its messages, or what a version says of it anew."""

    plant: Plant
    beginning: str
    recording: str | None
    version: str | None
    alert: Alert | None = None
    verdict: Verdict | None = None
    is_anew: bool = False
    _missing: list[str] = field(default_factory=list)
    _tried: bool = False
    _unusable: str | None = None

    def answer(self) -> tuple[Case, list[str]]:
        """Return the case, and what is missing. Raises SourceError for an unknown id, UsageError."""
        findings = run_async(find(self.plant, self.beginning))
        found = findings.one() or Found()
        if found.is_empty and (judged := run_async(judged_after(self.plant, self.beginning))) is not None:
            findings = run_async(find(self.plant, judged))
            found = findings.one() or Found()
        self.alert, self.verdict = found.alert, found.verdict
        if found.is_empty and self.recording is None:
            raise SourceError(self._unknown(findings, found))
        attribution = found.attribution
        window: Window | None = None
        if self.recording is not None:
            window, attribution = self._from_recording(self.recording, findings.id, found)
        message = self.alert or self.verdict
        assert message is not None
        facts = Facts.of(message, self.plant.settings.alerts.false_alarm_rate)
        courses = None if window is None else courses_of_window(window, facts, self.plant.settings)
        if courses is None and found.window is not None:
            try:
                courses = courses_of_message(found.window, facts, self.plant.settings)
            except ValueError as error:
                self._missing.append(f"the window cannot be read: {error}")
        case = Case(facts, attribution, courses)
        if window is None:
            case = self._with_reasons(case)
        if facts.is_alert and not is_explained(case.attribution) and not self._tried:
            self._missing.append(self._why_no_reasons(case.attribution))
        if case.courses is None and facts.decision in ("normal", "anomalous"):
            self._missing.append(self.why_no_window(facts))
        return case, self._missing

    def _from_recording(self, recording: str, name: str, found: Found) -> tuple[Window | None, Attribution | None]:
        """Take the sequence from the recording; judge it anew unless it was, and explain it unless it is."""
        from streamad.commands.explain.anew import explain_anew, find_recorded, judge_anew  # noqa: PLC0415 - rarely needed

        message = found.alert or found.verdict
        named = None if message is None else (message.stream, message.sequence)
        recorded = run_async(find_recorded(self.plant, recording, name, named))
        window = None if isinstance(recorded.window, Unscorable) else recorded.window
        if isinstance(recorded.window, Unscorable):
            self._unusable = f"the sequence in {recording} cannot be judged: {recorded.window.detail}"
        attribution = found.attribution
        if message is None or self.version is not None:
            self.is_anew = True
            anew = judge_anew(self.plant, recorded, self.version)
            self.alert, self.verdict, attribution = anew.alert, anew.verdict, anew.attribution
            if anew.missing is not None:
                self._missing.append(anew.missing)
        elif found.alert is not None and window is not None and not is_explained(attribution):
            attribution = self._explained(explain_anew(self.plant, found.alert, window)) or attribution
        return window, attribution

    def _with_reasons(self, case: Case) -> Case:
        """Return the case with reasons made from the window that the outputs kept, if they lack them."""
        courses = case.courses
        if courses is None or self.alert is None or is_explained(case.attribution):
            return case
        settings = self.plant.settings
        length = settings.window.length
        ours, theirs = ([(each.name, each.unit) for each in of] for of in (settings.channel_specs, courses.channels))
        if theirs != ours or courses.length > length:
            return case
        import numpy as np  # noqa: PLC0415

        from streamad.commands.explain.anew import explain_anew  # noqa: PLC0415 - rarely needed

        values = np.zeros((len(courses.channels), length), np.float32)
        values[:, : courses.length] = courses.values
        made = self._explained(explain_anew(self.plant, self.alert, Window(values, courses.length)))
        return case if made is None else Case(case.facts, made, courses)

    def _explained(self, made: tuple[Attribution | None, str | None]) -> Attribution | None:
        attribution, why = made
        self._tried = True
        if attribution is not None:
            self.is_anew = True
        if why is not None:
            self._missing.append(why)
        return attribution

    def why_no_window(self, facts: Facts) -> str:
        """Return why there are no readings, and what to do."""
        if self._unusable is not None:
            return self._unusable
        remedy = "name the recording that holds the sequence with --recording FILE"
        place = place_of(self.plant, "windows")
        if facts.decision not in ("normal", "anomalous"):
            return f"the sequence has no window, as it {_UNJUDGED[facts.decision]}"
        if place is None:
            return f"its readings were not kept (sinks.windows keeps those of later alerts): {remedy}"
        if not facts.is_alert and self.plant.settings.display.windows == "alerts":
            return f"its readings are not in {place} (display.windows: all keeps those without an alert, too): {remedy}"
        return (
            f"its readings are not in {place} (kept from the first run with sinks.windows on, until deleted): {remedy}"
        )

    def _why_no_reasons(self, attribution: Attribution | None) -> str:
        if attribution is not None:
            return f"the alert could not be explained: {attribution.detail or 'no reason is given'}"
        place = place_of(self.plant, "attributions")
        again = "--recording FILE makes the reasons now"
        if place is None:
            return f"its reasons were not kept (sinks.attributions keeps those of later alerts): {again}"
        return (
            f"its reasons are not in {place}: a monitor writes them a moment after the alert, at its next start at the "
            f"latest; {again}"
        )

    def _unknown(self, findings: Findings, found: Found) -> str:
        if found.attribution is not None or found.window is not None:
            return (
                f"{findings.id} has reasons or a window, but neither alert nor verdict in the outputs: judge its "
                "recording anew with --recording FILE"
            )
        config = self.plant.config
        if not findings.places:
            return (
                f"{config} has no outputs that can be read yet (sinks.alerts and sinks.verdicts as files or topics): "
                "judge its recording with --recording FILE"
            )
        unknown = f"no alert or verdict in {', '.join(findings.places)} has an id that begins with {findings.beginning}"
        if findings.skipped.n:
            return f"{unknown}, but {findings.skipped.text}; judge its recording anew with --recording FILE"
        return (
            f"{unknown}: an id that replay or score printed needs --recording FILE; streamad alerts tail --no-follow "
            "prints those of run; another plant needs --config"
        )


_UNJUDGED = {"unscorable": "could not be judged", "learning": "came before the first model"}
