"""Labels: which sequences are normal, by id or by stream and id, from a table or from the recordings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from streamad.commands.shared.figures.labels import LabelOptions, Labels
from streamad.errors import SourceError, UsageError
from streamad.judge.label_words import WORDS_TEXT
from streamad.settings.decode import DecodeSettings
from streamad.testing import ListSource


class Labelled(ListSource):
    """A source whose recordings say what they are."""

    def labels(self) -> Mapping[str, str]:
        return {"1": "1.0", "2": "2.0"}


def read_labels(where: str, source: ListSource, normal: str | None = None, **decode: str) -> Labels:
    labels = LabelOptions(where, normal).read(source, DecodeSettings.model_validate(decode))
    assert labels is not None
    return labels


def read(tmp_path: Path, text: str, normal: str | None = None) -> Labels:
    path = tmp_path / "labels.csv"
    path.write_text(text)
    return read_labels(str(path), ListSource([]), normal)


@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = {"fifo": tmp_path / "fifo", "device": Path("/dev/zero"), "folder": tmp_path}[kind]
    if kind == "fifo":
        os.mkfifo(path)
    with pytest.raises(SourceError, match=r"cannot read the labels \((not a regular file|Is a directory)"):
        read_labels(str(path), ListSource([]))


def test_without_a_stream_a_label_holds_in_any(tmp_path: Path) -> None:
    labels = read(tmp_path, "sequence,label\na,0\nb,1\n")
    assert [labels.is_anomalous(stream, name) for stream in "xy" for name in "abc"] == [False, True, None] * 2
    assert labels.example == "a"


def test_a_label_keeps_its_own_text_and_a_whole_number_has_no_point(tmp_path: Path) -> None:
    labels = read(tmp_path, "sequence,label\na,0.0\nb,7\nc,2.50\nd,N.OK\n")
    assert [labels.of("x", name) for name in "abcde"] == [
        ("0", False),
        ("7", True),
        ("2.5", True),
        ("N.OK", True),
        None,
    ]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators_of_spreadsheets_and_whole_numbers_with_a_point_are_read(tmp_path: Path, separator: str) -> None:
    labels = read(tmp_path, "sequence,label\na,0.0\nb,1\n".replace(",", separator))
    assert [labels.is_anomalous("x", name) for name in "ab"] == [False, True]


def test_with_a_stream_it_holds_there_only_and_an_empty_one_stands_for_the_others(tmp_path: Path) -> None:
    labels = read(tmp_path, "label,stream,sequence\n0,x,a\n1,y,a\n1,,b\n0,x,b\n")
    assert [labels.is_anomalous(stream, "a") for stream in "xyz"] == [False, True, None]
    assert [labels.is_anomalous(stream, "b") for stream in "xyz"] == [False, True, True]
    assert labels.example == "x/a"


def test_two_labels_of_one_sequence_are_an_error_but_not_of_two_streams(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="line 3: 'a' has another label above"):
        read(tmp_path, "stream,sequence,label\nx,a,0\nx,a,1\n")
    assert read(tmp_path, "stream,sequence,label\nx,a,0\ny,a,1\n").is_anomalous("y", "a") is True


@pytest.mark.parametrize("header", ["sequence,label,label", "sequence,sequence,label", "stream,stream,sequence,label"])
def test_a_column_that_is_there_twice_is_an_error(tmp_path: Path, header: str) -> None:
    with pytest.raises(SourceError, match=r"has the column \w+ twice: remove or rename one"):
        read(tmp_path, f"{header}\na,a,a,0\n")


def test_long_labels_are_cut_in_errors(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as error:
        read(tmp_path, f"sequence,label\na,{'w' * 100_000}\nb,\n")
    assert len(str(error.value)) < 500
    assert "--normal must name some of: '', wwww" in str(error.value)


def test_several_labels_may_mean_normal(tmp_path: Path) -> None:
    labels = read(tmp_path, "sequence,label\na,good\nb,fine\nc,bad\n", "good, fine")
    assert [labels.is_anomalous("x", name) for name in "abc"] == [False, False, True]


@pytest.mark.parametrize(
    ("normal", "anomalous"),
    [
        ("0", "1"),
        ("0", "7"),
        ("ok", "-1"),
        ("normal", "anomalous"),
        ("Normal", "Anomaly"),
        ("good", "bad"),
        ("GOOD", " Bad "),
        ("OK", "N.OK"),
        ("i.O.", "n.i.O."),
        ("pass", "fail"),
        ("ok", "bad"),
    ],
)
def test_common_pairs_of_words_need_no_option(tmp_path: Path, normal: str, anomalous: str) -> None:
    labels = read(tmp_path, f"sequence,label\na,{normal}\nb,{anomalous}\n")
    assert [labels.is_anomalous("x", name) for name in "ab"] == [False, True]


@pytest.mark.parametrize(
    ("labels", "unknown"),
    [
        ("good,broken", "broken"),
        ("true,false", "false"),
        ("0,stuck", "stuck"),
        ("-1,1", "-1"),
        ("1,2", "2"),
        ("0,", ""),
    ],
)
def test_a_word_that_says_neither_is_refused_with_those_that_do(tmp_path: Path, labels: str, unknown: str) -> None:
    one, other = labels.split(",")
    with pytest.raises(SourceError) as error:
        read(tmp_path, f"sequence,label\na,{one}\nb,{other}\n")
    assert f"the label {unknown!r} says neither normal nor anomalous" in str(error.value)
    assert f"accepted are 0 and 1, {WORDS_TEXT}; for others --normal must name some of: " in str(error.value)
    by_name = read(tmp_path, f"sequence,label\na,{one}\nb,{other}\n", one)
    assert [by_name.is_anomalous("x", name) for name in "ab"] == [False, True]


def test_labels_that_are_all_anomalous_have_a_note_or_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("sequence,label\na,1\nb,1\n")
    labels = LabelOptions(str(path)).read(ListSource([]), DecodeSettings())
    assert labels is not None
    assert [labels.is_anomalous("x", name) for name in "ab"] == [True, True]
    said = "all 2 labels mean anomalous"
    assert capsys.readouterr().err == f"note: {said}; if some are normal, name their labels with --normal\n"
    with pytest.raises(SourceError, match=f"{said}, and training needs normal sequences: .*--normal"):
        LabelOptions(str(path)).read(ListSource([]), DecodeSettings(), needs_normal=True)
    path.write_text("sequence,label\na,stuck\nb,2\n")
    assert read_labels(str(path), ListSource([]), "").by_key == {(None, "a"): ("stuck", True), (None, "b"): ("2", True)}
    with pytest.raises(SourceError, match="no sequence has the label '0'; --normal must name some of: 2, stuck"):
        read_labels(str(path), ListSource([]), "0")


def test_columns_of_other_names_are_named_by_options(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("batch,result\na,good\nb,bad\n")
    with pytest.raises(SourceError, match=r"columns: batch, result\).* --label-id batch --label-column result"):
        LabelOptions(str(path)).read(ListSource([]), DecodeSettings())
    options = LabelOptions(str(path), id_column="batch", label_column="result")
    labels = options.read(ListSource([]), DecodeSettings())
    assert labels is not None
    assert labels.by_key == {(None, "a"): ("good", False), (None, "b"): ("bad", True)}


@pytest.mark.parametrize(
    ("header", "by"),
    [
        ("Batch No,label", "Batch No"),
        ("sequence,Batch No,label", "Batch No"),
        ("label,Batch No,sequence", "Batch No"),
        ("sequence,label", "sequence"),
        ("stream,sequence,label", "sequence"),
    ],
)
def test_the_id_s_column_is_the_config_s_if_the_table_has_it(tmp_path: Path, header: str, by: str) -> None:
    path, names = tmp_path / "labels.csv", header.split(",")
    cells = [{"label": "1", "stream": "r1", by: "B-7"}.get(name, "other") for name in names]
    path.write_text(header + "\n" + ",".join(cells) + "\n")
    decode = DecodeSettings.model_validate({"fields": {"sequence": "Batch No"}})
    labels = LabelOptions(str(path), normal="").read(ListSource([]), decode)
    assert labels is not None
    assert labels.by_key == {("r1" if "stream" in names else None, "B-7"): ("1", True)}


def test_several_columns_name_the_sequence_together_as_in_the_config(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("fault,run,label\n0,7,0\n1,7,1\n")
    decode = DecodeSettings.model_validate({"fields": {"sequence": ["fault", "run"]}})
    labels = LabelOptions(str(path)).read(ListSource([]), decode)
    assert labels is not None
    assert labels.by_key == {(None, "0/7"): ("0", False), (None, "1/7"): ("1", True)}


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("id,label", "no column of the id (batch or sequence) (columns: id, label): ... --label-id id"),
        ("batch,ok", "no column of the label (label) (columns: batch, ok): ... --label-column ok"),
        (
            "stream,Lot No",
            "and of the label (label) (columns: stream, Lot No): ... --label-id 'Lot No' --label-column COLUMN",
        ),
        ("", "(columns: none): ... --label-id COLUMN --label-column COLUMN"),
    ],
)
def test_a_table_that_fits_in_no_way_is_refused_with_its_columns_and_what_to_write(
    tmp_path: Path, header: str, why: str
) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(header + "\n" if header else "")
    with pytest.raises(SourceError) as refused:
        LabelOptions(str(path)).read(ListSource([]), DecodeSettings.model_validate({"fields": {"sequence": "batch"}}))
    assert why.replace("...", "name those that it has, such as") in str(refused.value)


def test_a_label_s_column_is_never_that_of_the_id(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("sequence,state\na,0\nb,1\n")
    decode = DecodeSettings.model_validate({"fields": {"sequence": "state"}})
    labels = LabelOptions(str(path), label_column="state").read(ListSource([]), decode)
    assert labels is not None
    assert set(labels.by_key) == {(None, "a"), (None, "b")}


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"where": None, "normal": "good"}, "--normal is about labels: name their file with --labels"),
        ({"where": None, "label_column": "x"}, "--label-column is about labels"),
        ({"where": "source", "id_column": "x"}, "--labels source reads none"),
        ({"where": "a.csv", "id_column": "label"}, "a column cannot be both"),
    ],
)
def test_options_on_labels_that_apply_to_nothing_are_refused(options: dict[str, str], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        LabelOptions(**options)


def of_times(tmp_path: Path, text: str, **decode: str) -> Labels:
    path = tmp_path / "labels.csv"
    path.write_text(text)
    return read_labels(str(path), ListSource([]), **decode)


@pytest.mark.parametrize(
    ("name", "decode"),
    [
        ("2025-05-19T19:00:00+00:00", {}),
        ("2025-05-19T19:00:00Z", {}),
        ("2025-05-19T21:00:00+02:00", {}),
        ("2025-05-19 21:00:00", {"timezone": "Europe/Berlin"}),
        ("19.05.2025 21:00:00", {"timezone": "Europe/Berlin", "time_format": "%d.%m.%Y %H:%M:%S"}),
        ("1747681200000", {"time_unit": "ms"}),
    ],
)
def test_a_sequence_named_by_its_start_has_the_label_of_that_time(
    tmp_path: Path, name: str, decode: dict[str, str]
) -> None:
    labels = of_times(tmp_path, f"stream,sequence,label\nx,{name},1\n,B-7,0\n", **decode)
    assert labels.is_anomalous("x", "2025-05-19T19:00:00+00:00") is True
    assert labels.is_anomalous("y", "2025-05-19T19:00:00+00:00") is None
    assert labels.is_anomalous("x", "2025-05-19T19:00:00.000001+00:00") is None
    assert labels.is_anomalous("y", "B-7") is False


def test_two_labels_of_one_time_are_an_error_and_times_from_the_start_name_none(tmp_path: Path) -> None:
    text = "sequence,label\n2025-05-19T19:00:00Z,0\n2025-05-19T21:00:00+02:00,1\n"
    for other in (text, text.replace("Z,0", "Z,2") + "b,0\n"):  # also if both mean anomalous: each is a label by itself
        with pytest.raises(SourceError, match="two labels of one start"):
            of_times(tmp_path, other)
    assert of_times(tmp_path, text, time="relative").is_anomalous("x", "2025-05-19T19:00:00+00:00") is None


def test_labels_of_the_recordings() -> None:
    labels = read_labels("source", Labelled([]), "1")
    assert [labels.is_anomalous("x", name) for name in "123"] == [False, True, None]
    with pytest.raises(SourceError, match="carry no labels"):
        read_labels("source", ListSource([]))


def test_short_numbers_are_ids_and_no_times(tmp_path: Path) -> None:
    labels = of_times(tmp_path, "sequence;label\n001,0;0\n1,1;1\n1;0\n01;1\n", timezone="UTC")
    assert [labels.is_anomalous("x", name) for name in ("001,0", "1,1", "1", "01")] == [False, True, False, True]


def test_names_of_files_are_ids_without_their_ending_where_files_name_sequences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("sequence,label\nB-1.csv,0\nB-2.CSV.gz,1\nB-3,1\nB.4,0\n")
    labels = read_labels(str(path), ListSource([]), sequence_from="file")
    assert [labels.is_anomalous("r", f"B-{n}") for n in (1, 2, 3)] == [False, True, True]
    assert labels.is_anomalous("r", "B.4") is False
    assert "labels name files, such as B-1.csv: their endings are left out" in capsys.readouterr().err
    assert read_labels(str(path), ListSource([])).of("r", "B-1") is None
    path.write_text("sequence,label\nB-1.csv,0\nB-1.parquet,1\n")
    with pytest.raises(SourceError, match=r"two labels of one sequence: 'B-1.parquet'"):
        read_labels(str(path), ListSource([]), sequence_from="file")
