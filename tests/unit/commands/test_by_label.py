"""Detection and false alarms by label, as a person reads them: which rows, how wide, and what foreign labels may do."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.cells import cell_len

from streamad.commands.shared.console import VisibleConsole
from streamad.commands.shared.figures.report import print_by_label
from streamad.judge.evaluation import Evaluation, evaluate


def of(*counts: tuple[str, int, int], normal: tuple[str, ...] = ("0",), lost: bool = False) -> Evaluation:
    """Anomalous labels with their sequences and alerts, and ten quiet sequences of each normal one."""
    names = [name for name, n, _ in counts for _ in range(n)] + [name for name in normal for _ in range(10)]
    alerts = [i < k for _, n, k in counts for i in range(n)] + [False] * (10 * len(normal))
    anomalous = [True] * sum(n for _, n, _ in counts) + [False] * (10 * len(normal))
    scores = [
        None if lost and not alert and label else float(alert) for alert, label in zip(alerts, anomalous, strict=True)
    ]
    return evaluate(scores, alerts, anomalous, names)


def said(monkeypatch: pytest.MonkeyPatch, evaluation: Evaluation, n_models: int = 1, width: int = 80) -> list[str]:
    """The lines on a terminal, without the spaces at their ends."""
    console = VisibleConsole(file=StringIO(), force_terminal=True, color_system=None, width=width, soft_wrap=True)
    for module in ("console", "figures.report"):
        monkeypatch.setattr(f"streamad.commands.shared.{module}.out", console)
    print_by_label(evaluation, n_models)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue().replace("\N{NO-BREAK SPACE}", " ")
    return [line.rstrip() for line in text.splitlines()]


def test_a_bare_pair_of_labels_has_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, of(("1", 4, 3))) == []
    assert said(monkeypatch, evaluate([], [], [])) == []


def test_several_anomalous_labels_have_a_row_each_and_one_normal_label_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert said(monkeypatch, of(("stuck", 4, 1), ("drift", 10, 10))) == [
        "Found by label:",
        "label  alerted   share (95 % interval)    AUC",
        "drift  10 of 10  100.0 % (69.2 to 100.0)  1.000",
        "stuck  1 of 4    25.0 % (0.6 to 80.6)     0.625",
    ]


def test_several_normal_labels_have_a_row_each(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, of(("1", 4, 3), normal=("good", "fair"))) == [
        "False alarms by label:",
        "label  alerted  share (95 % interval)",
        "fair   0 of 10  0.0 % (0.0 to 30.8)",
        "good   0 of 10  0.0 % (0.0 to 30.8)",
    ]


def test_unscorable_sequences_have_a_column_if_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = said(monkeypatch, of(("stuck", 4, 1), ("drift", 2, 2), lost=True))
    assert lines[1].split()[-1] == "unscorable"
    assert [line.split()[-1] for line in lines[2:]] == ["3", "1.000"]


def test_of_many_labels_the_twenty_with_most_sequences_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    many = of(*((f"fault {n}", 1 + (n > 290), 1) for n in range(300)), normal=tuple(f"kind {n}" for n in range(21)))
    lines = said(monkeypatch, many)
    assert len(lines) == (2 + 20 + 1) + (2 + 20 + 1)
    assert [line[:9].strip() for line in lines[2:22]] == [f"fault {n}" for n in (*range(291, 300), *range(11))]
    assert lines[22] == "and 280 more labels (280 sequences): --json lists all"
    assert lines[-1] == "and 1 more label (10 sequences): --json lists all"
    assert len(many.by_label) == 321


@pytest.mark.parametrize(
    "hostile",
    [
        "x" * 5000,
        "\x1b[2J\x1b]0;t\x07",
        "a\nALERT r1",
        "漢字" * 40,
        "\u202eb[red]",
        "",
        "kafka://u:pw@host/" + "y" * 90,
    ],
)
def test_a_label_is_foreign_text_that_keeps_to_its_cell(monkeypatch: pytest.MonkeyPatch, hostile: str) -> None:
    wide = of((hostile, 1500, 1500), ("stuck", 1234, 1000), lost=True)
    lines = said(monkeypatch, wide)
    assert len(lines) == 4  # the title, the head, and a line for each label
    assert all(cell_len(line) <= 80 for line in lines)
    assert all(line.isprintable() for line in lines)
    assert not any("pw@" in line for line in lines)
    assert "1500 of 1500" in lines[2]
    assert "1000 of 1234  81.0 % (78.7 to 83.2)" in lines[3]
    assert wide.by_label[0].label == hostile


def test_an_auc_over_several_models_is_said_to_mix_their_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = said(monkeypatch, of(("1", 4, 3)), n_models=3)
    assert " ".join(lines).startswith("note: the AUC compares scores of 3 models, each with a scale of its own.")
    assert said(monkeypatch, of(("1", 4, 3), normal=()), n_models=3) == []
