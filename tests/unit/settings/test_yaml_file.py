"""What a file that is no config gets: one line that says why, never a traceback, an object or all memory."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamad.errors import ConfigError, Problem
from streamad.settings.yaml_file import locate, read_yaml


def read(tmp_path: Path, content: str | bytes) -> tuple[dict[str, Any], dict[tuple[int | str, ...], int], list[Any]]:
    path = tmp_path / "plant.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_yaml(path)


def problem(tmp_path: Path, content: str | bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, content)
    (found,) = caught.value.problems
    assert "\n" not in str(found)
    return str(found)


def test_each_key_and_item_knows_its_line(tmp_path: Path) -> None:
    content, lines, twice = read(tmp_path, "# comment\na: 1\nb:\n  - x: 1\n    y: 2\n  - z\n")
    assert content == {"a": 1, "b": [{"x": 1, "y": 2}, "z"]}
    assert lines == {("a",): 2, ("b",): 3, ("b", 0): 4, ("b", 0, "x"): 4, ("b", 0, "y"): 5, ("b", 1): 6}
    assert not twice


def test_a_plug_ins_problem_gets_the_line_of_its_key_also_of_one_with_too_many_digits_for_a_number() -> None:
    lines = {("options",): 1, ("options", 0): 2, ("options", "9" * 5000): 3}
    assert locate(Problem("options.0", "x"), "", lines).line == 2
    assert locate(Problem(f"options.{'9' * 5000}", "x"), "", lines).line == 3


def test_unicode_with_and_without_a_byte_order_mark(tmp_path: Path) -> None:
    text = "unit: °C\nname: Gärkessel 発酵 🍺\n"
    expected = {"unit": "°C", "name": "Gärkessel 発酵 🍺"}
    assert read(tmp_path, text)[0] == expected
    assert read(tmp_path, b"\xef\xbb\xbf" + text.encode())[0] == expected


def test_a_key_is_a_text_also_if_it_reads_on_or_no(tmp_path: Path) -> None:
    content, _, _ = read(tmp_path, "a: [{on: [x], No: yes}]\n")
    assert content == {"a": [{"on": ["x"], "No": True}]}


def test_a_key_given_twice_is_a_problem_at_its_second_line(tmp_path: Path) -> None:
    _, _, twice = read(tmp_path, "a:\n  b: 1\n  c: 2\n  b: 3\na: 4\n")
    assert sorted(map(str, twice)) == ["a (line 5): key given twice", "a.b (line 4): key given twice"]


def test_a_missing_file_is_an_error_with_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read it: No such file or directory; write one with: streamad init"):
        read_yaml(tmp_path / "nowhere.yaml")


def test_a_folder_is_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read it: Is a directory"):
        read_yaml(tmp_path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero")
def test_a_device_without_end_is_no_config() -> None:
    with pytest.raises(ConfigError, match="is larger than 16 MiB"):
        read_yaml(Path("/dev/zero"))


NO_MAPPINGS = ("", "# nothing\n", "- a\n- b\n", "just text", "3", "1: x\n", "2026-03-01: x\n", "null")
BOTTOMLESS = ("a: &a [*a]\n", "a: &a {b: *a}\n")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *((content, "(file): must be a mapping of sections") for content in NO_MAPPINGS),
        *((content, "(file): is not UTF-8 text") for content in (b"\xff\xfea\x00:\x00", b"name: caf\xe9\n", b"\x80")),
        *((content, "(file): is nested too deeply") for content in BOTTOMLESS),
        pytest.param("a: " + "[" * 20_000, "(file): is nested too deeply", id="tower"),
        ("a: 1\n\tb: 2\n", "(file) (line 2): is not YAML: found character '\\t' that cannot start any token"),
        ("a: [1, 2\n", "(file) (line 2): is not YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: 1\n---\nb: 2\n", "(file) (line 2): is not YAML: but found another document"),
        ("a: \x00\n", "(file): is not YAML: special characters are not allowed"),
        ("a: *nobody\n", "(file) (line 1): is not YAML: found undefined alias 'nobody'"),
        ("a: 1\nb: 2020-13-45\n", "(file) (line 2): is not YAML: no valid timestamp"),
        ("a: !!bool maybe\n", "(file) (line 1): is not YAML: no valid bool"),
        ("a: !!timestamp soon\n", "(file) (line 1): is not YAML: no valid timestamp"),
        ("a: !!int x\n", "(file) (line 1): is not YAML: no valid int"),
        pytest.param(
            "a: " + "1" * 5000,
            "(file) (line 1): is not YAML: no valid int",
            marks=pytest.mark.skipif(not 0 < sys.get_int_max_str_digits() < 5000, reason="no limit of digits"),
            id="5000 digits",
        ),
    ],
)
def test_a_file_that_is_no_config_is_an_error_with_reason_and_place(
    tmp_path: Path, content: str | bytes, said: str
) -> None:
    assert problem(tmp_path, content) == said


@pytest.mark.parametrize(
    "tag",
    ["!!python/object/apply:os.system ['touch owned']", "!!python/name:os.system", "!!python/module:os", "!mine x"],
)
def test_objects_are_never_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tag: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert "could not determine a constructor for the tag" in problem(tmp_path, f"a: {tag}\n")
    assert not (tmp_path / "owned").exists()


def test_aliases_that_multiply_are_refused_at_once(tmp_path: Path) -> None:
    layers = ['l0: &l0 ["x", "x", "x", "x", "x", "x", "x", "x", "x", "x"]']
    layers += [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 12)]
    started = time.monotonic()
    assert "more than 100000 entries" in problem(tmp_path, "\n".join(layers))
    assert time.monotonic() - started < 10


def test_an_honest_alias_works(tmp_path: Path) -> None:
    content, _, _ = read(tmp_path, "a: &limits {x: 1}\nb: *limits\nc:\n  <<: *limits\n  y: 2\n")
    assert content == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}


@given(
    st.text(st.sampled_from("ab:-[]{}!&*<>|?'\"#,%@` \n\t.0123456789eE_~=") | st.characters(codec="utf-8"), max_size=60)
    | st.binary(max_size=30)
)
@example("a: !!float x\n")
@example("a: !!binary é\n")
@example("? {a: 1}\n: b\n")
@example("a: !!set [1]\n")
@example("a: !!pairs [1]\n")
@example("a: 9999-99-99T99:99:99Z\n")
@example("a: 190:20:30.15\n")
@example("a: 0b_\n")
@example("a: !!null x\n<<: 3\n")
@example("%YAML 9.9\n---\na: 1\n")
def test_any_file_is_a_mapping_or_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, content: str | bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with contextlib.suppress(ConfigError):
        mapping, lines, _ = read_yaml(path)
        assert isinstance(mapping, dict)
        assert {key for key in mapping if (key,) not in lines} == set() or "<<" in str(content)
