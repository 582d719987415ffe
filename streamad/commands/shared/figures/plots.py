"""Pictures of the alerts of a run, a file each."""

from __future__ import annotations

import re
from pathlib import Path

from streamad.commands.shared.console import count, err, note, out, printed
from streamad.commands.shared.plants import check_out
from streamad.commands.shared.progress_bar import Bar
from streamad.errors import UsageError
from streamad.judge.judging import JudgedSequence
from streamad.messages import Attribution
from streamad.outputs.cases import Case, Normals, courses_of_window
from streamad.pictures.content import Picture
from streamad.pictures.drawing import check_extra, drawn
from streamad.pictures.facts import Facts
from streamad.plant import Plant
from streamad.system.files import write_atomically, writing

MOST_PICTURES = 200
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_CHARACTERS = 40
_ID_CHARACTERS = 8


def file_name(facts: Facts) -> str:
    """Return the name of a picture's file: stream, sequence and id, of letters, digits, "-" and "_" alone."""
    parts = [_UNSAFE.sub("_", name)[:_NAME_CHARACTERS].strip("_-") or "_" for name in (facts.stream, facts.sequence)]
    return f"{'-'.join([*parts, facts.id[:_ID_CHARACTERS]])}.png"


class Plots:
    """Gathers what to draw of the first 200 alerts of a run, and draws it into ``folder`` after it.

    Raises UsageError if the folder is a place of the plant's, or a file; PluginError without matplotlib.
    """

    def __init__(self, plant: Plant, folder: Path, replayed: str | None) -> None:
        check_extra()
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"--plot {folder} is a file: name a folder")
        check_out(plant, folder / "picture.png", is_recording=False, also_read=replayed, option="--plot")
        self._plant = plant
        self._folder = folder
        self._normals = Normals(plant)
        self._waiting: dict[str, JudgedSequence] = {}
        self._ready: list[Picture] = []
        self._n_alerts = 0

    def judged(self, judged: JudgedSequence) -> None:
        """Note a judged sequence: an alert waits for its attribution."""
        if judged.alert is None:
            return
        self._n_alerts += 1
        if self._n_alerts > MOST_PICTURES:
            return
        self._waiting[judged.alert.alert_id] = judged
        if judged.attribution is not None:
            self.explained(judged.attribution)

    def explained(self, attribution: Attribution) -> None:
        """Take an attribution: what the picture shows is chosen now, and the window is forgotten."""
        judged = self._waiting.pop(attribution.alert_id, None)
        if judged is not None:
            self._choose(judged, attribution)

    def draw(self, *, quiet: bool) -> int:
        """Draw all into files; return how many. Raises OutputError."""
        for judged in self._waiting.values():
            self._choose(judged, None)
        self._waiting.clear()
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        with Bar("drawing", quiet=quiet) as bar:
            for number, picture in enumerate(self._ready):
                bar.show(f"drawing: picture {number + 1} of {len(self._ready)}", number, len(self._ready))
                write_atomically(self._folder / file_name(picture.facts), drawn(picture))
        if not quiet:
            out.print(f"{count(len(self._ready), 'picture')} of {count(self._n_alerts, 'alert')} in {self._shown}")
        if self._n_alerts > MOST_PICTURES:
            more = self._n_alerts - MOST_PICTURES
            err.print(
                note(f"the {more} alerts after the first {MOST_PICTURES} are not drawn: streamad explain draws one")
            )
        return len(self._ready)

    @property
    def _shown(self) -> str:
        return printed(str(self._folder))

    def _choose(self, judged: JudgedSequence, attribution: Attribution | None) -> None:
        assert judged.alert is not None
        assert judged.window is not None
        facts = Facts.of(judged.alert)
        case = Case(facts, attribution, courses_of_window(judged.window, facts, self._plant.settings))
        picture = case.picture(self._normals.of(facts))
        assert picture is not None
        self._ready.append(picture)
