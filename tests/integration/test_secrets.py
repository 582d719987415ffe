"""No command prints or writes a user, a password or a secret parameter of a URL or of a list of brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runtime.cli import CliPlant, Outcome

SECRET = "hunter22"
COMMANDS = (
    "check",
    "check --json --options",
    "run",
    "run --json",
    "-vv run --quiet",
    "replay",
    "score",
    "train",
    "models list",
    "models show",
    "models status --json",
    "models retrain",
    "inliers list",
    "feedback --alert 0123456789 --veto",
    "alerts tail --limit 1",
    "topics check",
)


def searched(outcome: Outcome, folder: Path) -> None:
    """Assert that the secret is in no output, and in no file but the config."""
    assert SECRET not in outcome.out
    assert SECRET not in outcome.err
    assert "Traceback" not in outcome.err
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "plant.yaml":
            assert SECRET.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_config_with_secrets_in_its_urls_is_refused_without_showing_them(plant: CliPlant, command: str) -> None:
    url = f"kafka://kim:{SECRET}@broker:9092/batches"
    plant.write_config(
        source={"url": url},
        model={"recordings": f"kafka:kim:{SECRET}@broker:9092/batches", "registry": "registry"},
        sinks={"alerts": f"kafka://broker:9092/alerts?sasl_password={SECRET}", "events": f"https://h/?token={SECRET}"},
        learning={"store": f"s3://kim:{SECRET}@bucket/store", "feedback": f"x://h/p?api_key={SECRET}"},
    )
    outcome = plant(command)
    assert outcome.code == 2, outcome.err
    searched(outcome, plant.folder)


@pytest.mark.parametrize("command", ["check", "run", "topics check", "replay"])
@pytest.mark.parametrize(
    "options",
    [
        {"brokers": f"kim:{SECRET}@broker:9092"},
        {"brokers": f"{SECRET}@broker:9092"},
        {"security": {"protocol": "sasl_ssl", "mechanism": "plain", "username": "kim", "password": SECRET}},
        {"sasl_password": SECRET},
        {"start": f"kafka://kim:{SECRET}@broker"},
        {"request_timeout": f"kafka://kim:{SECRET}@broker"},
    ],
    ids=["password", "user", "security", "unknown", "choice", "duration"],
)
def test_options_with_secrets_are_refused_without_showing_them(
    plant: CliPlant, command: str, options: dict[str, object]
) -> None:
    plant.write_config(source={"url": "kafka:batches" if "brokers" in options else "kafka://b:1/t", "options": options})
    outcome = plant(command)
    assert outcome.code in (1, 2), outcome.err
    searched(outcome, plant.folder)


@pytest.mark.parametrize(
    "command",
    [
        "replay --from {}",
        "score {}",
        "train --from {}",
        "record --from {} --out recorded",
        "alerts tail --url {}",
        "simulate --to {} --batches 1",
        "init {} --out other.yaml",
    ],
)
@pytest.mark.parametrize(
    "url", [f"kafka://kim:{SECRET}@broker:9092/t", f"nothing://kim:{SECRET}@b/t", f"kafka://b:1/t?password={SECRET}"]
)
def test_a_url_of_the_command_line_is_refused_without_showing_its_secrets(
    plant: CliPlant, command: str, url: str
) -> None:
    outcome = plant(command.format(url))
    assert outcome.code == 2, outcome.err
    searched(outcome, plant.folder)


@pytest.mark.parametrize("command", ["alerts tail {}", "run {}", "models list {}", "{}", "run --instance=a {}"])
def test_a_wrong_argument_is_quoted_without_its_secrets_and_controls(plant: CliPlant, command: str) -> None:
    outcome = plant(command.format(f"kafka://kim:{SECRET}@broker:9092/\u202eb\x1b[2J"), config=False)
    assert outcome.code == 2
    searched(outcome, plant.folder)
    assert "kafka://***@broker:9092/" in outcome.err
    assert "\u202e" not in outcome.err
    assert "\x1b[2J" not in outcome.err


@pytest.mark.parametrize("section", [{"model": "registry"}, {"run": "checkpoint"}, {"learning": "store"}])
def test_a_url_in_place_of_a_folder_shows_no_secret(plant: CliPlant, section: dict[str, str]) -> None:
    url = f"s3://kim:{SECRET}@bucket/models"
    plant.write_config(**{name: {key: url} for name, key in section.items()})
    assert SECRET not in "".join(f"{plant('check')}{plant('models list')}")
