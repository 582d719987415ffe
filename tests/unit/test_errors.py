"""The error tree: one root, each class says when it is raised, and crosses process borders whole."""

from __future__ import annotations

import pickle

import pytest

from streamad import errors
from streamad.errors import (
    ConfigError,
    DecodeError,
    EncodingError,
    ObjectError,
    OutputError,
    PartitionLost,
    PluginError,
    Problem,
    StreamadError,
    UsageError,
)

CLASSES = [getattr(errors, name) for name in errors.__all__ if name not in ("ObjectFailure", "Problem", "some_of")]
NARROWER = [cls for cls in CLASSES if cls is not StreamadError]


def test_every_error_of_the_module_is_exported() -> None:
    defined = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert defined == {cls.__name__ for cls in CLASSES}


@pytest.mark.parametrize("cls", NARROWER)
def test_each_error_derives_from_the_root_and_documents_when_it_is_raised(cls: type[StreamadError]) -> None:
    assert issubclass(cls, StreamadError)
    assert cls.__doc__ is not None
    assert cls.__doc__.startswith(("Raised when ", "Raised inside "))


def test_the_exit_code_is_2_for_usage_and_config_and_1_for_the_rest() -> None:
    assert {cls for cls in CLASSES if cls.exit_code == 2} == {ConfigError, PluginError, UsageError}
    assert {cls.exit_code for cls in CLASSES} == {1, 2}


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem("window.length", "too short", 7), "window.length (line 7): too short"),
        (Problem("window.length", "too short"), "window.length: too short"),
        (Problem("", "is not YAML", 1), "(file) (line 1): is not YAML"),
    ],
)
def test_a_problem_names_its_place(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_a_config_error_counts_its_problems() -> None:
    one, two = Problem("a", "x"), Problem("b", "y", 2)
    assert str(ConfigError([one], source="plant.yaml")) == "plant.yaml: 1 problem\n  a: x"
    assert str(ConfigError([one, two])) == "2 problems\n  a: x\n  b (line 2): y"


def test_errors_survive_the_way_out_of_another_process() -> None:
    config = pickle.loads(pickle.dumps(ConfigError([Problem("a", "x", 3)], source="plant.yaml")))  # noqa: S301 - our own bytes
    assert (config.problems, config.source) == ((Problem("a", "x", 3),), "plant.yaml")
    assert str(config) == "plant.yaml: 1 problem\n  a (line 3): x"
    lost = pickle.loads(pickle.dumps(PartitionLost("p", "fenced", fenced=True)))  # noqa: S301
    assert (lost.partition, str(lost), lost.fenced) == ("p", "fenced", True)
    decode = pickle.loads(pickle.dumps(DecodeError("not_json", "unexpected end")))  # noqa: S301
    assert (decode.kind, str(decode)) == ("not_json", "unexpected end")
    output = pickle.loads(pickle.dumps(OutputError("disk full")))  # noqa: S301
    assert (type(output), str(output)) == (OutputError, "disk full")
    missing = pickle.loads(pickle.dumps(ObjectError("missing", "s3://b/a: there is no such object")))  # noqa: S301
    assert (missing.kind, str(missing)) == ("missing", "s3://b/a: there is no such object")
    encoding = pickle.loads(pickle.dumps(EncodingError("its header is not utf-8-sig", "cp1252")))  # noqa: S301
    assert (str(encoding), encoding.likely) == ("its header is not utf-8-sig", "cp1252")
