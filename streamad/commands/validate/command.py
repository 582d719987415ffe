"""``streamad validate``: an acceptance protocol: what the monitor must show beside what was found."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamad.commands.shared.console import (
    ConfigOption,
    JsonOption,
    err,
    judge_on_one_thread,
    local_url,
    note,
    out,
    print_json,
    print_table,
    printed,
    run_async,
)
from streamad.commands.shared.figures.labels import LabelColumnOption, LabelIdOption, LabelsOption, NormalOption
from streamad.commands.shared.options import VersionOption, local_path, versions_asked
from streamad.commands.shared.plants import check_out, load_whole_plant
from streamad.errors import UsageError
from streamad.plant import Plant

if TYPE_CHECKING:
    from streamad.validation.protocol import Protocol

NOT_PASSED = 3
"""The exit code of a protocol that was written and is not passed."""
_JSON, _PAGE = "protocol.json", "protocol.html"
_OUTCOMES = {"passed": "passed", "failed": "FAILED", "not_shown": "NOT SHOWN"}


def validate(
    acceptance: Annotated[
        Path, typer.Argument(callback=local_path, help="The expectations, which are written first (--init).")
    ] = Path("acceptance.yaml"),
    *,
    config: ConfigOption = Path("plant.yaml"),
    write_to: Annotated[
        Path, typer.Option("--out", callback=local_path, metavar="DIR", help="Folder of the protocol.")
    ] = Path("acceptance"),
    force: Annotated[bool, typer.Option("--force", help="Write over what is there.")] = False,
    version: VersionOption = None,
    init: Annotated[
        bool, typer.Option("--init", help="Write a commented file of expectations instead, to be edited.")
    ] = False,
    recordings: Annotated[
        str | None, typer.Option("--recordings", metavar="PATH", help="With --init: the recordings to judge.")
    ] = None,
    labels: LabelsOption = None,
    normal: NormalOption = None,
    label_id: LabelIdOption = None,
    label_column: LabelColumnOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write an acceptance protocol: what the monitor must show on recordings, beside what was found.

    The expectations (acceptance.yaml) name data sets, the rates that are to be shown on them, and what decides: by
    default the whole 95 % interval of a rate must keep to its limit. The protocol (protocol.html, protocol.json) has
    the digests of data, config and model, versions and seeds, each expectation beside what was found, and places for
    signatures. It is no claim of compliance.

    Exit code 0: passed; 3: not passed; 1 and 2: no protocol was written. Nothing of the plant is changed.

    Examples: streamad validate --init --recordings test.csv --labels truth.csv; streamad validate --out acceptance
    """
    label_options = (labels, normal, label_id, label_column)
    if init:
        from streamad.commands.validate.starting import write_expectations  # noqa: PLC0415 - only it needs the template

        plant = load_whole_plant(config)
        write_expectations(plant, acceptance, recordings, label_options, force=force)
        return
    if recordings is not None or any(each is not None for each in label_options):
        raise UsageError("--recordings and the options on labels go with --init: the expectations name the data sets")
    judge_on_one_thread()
    try:
        protocol = _validated(config, acceptance, write_to, version, force=force)
    except KeyboardInterrupt:
        err.print("interrupted: no protocol was written")
        raise typer.Exit(130) from None
    page = write_to / _PAGE
    if as_json:
        outcomes = {name: protocol.count(name) for name in ("passed", "failed", "not_shown")}
        print_json({"passed": protocol.passed, "lines": outcomes, "out": str(write_to), "notes": protocol.notes})
    else:
        _print(protocol, page)
    if not protocol.passed:
        raise typer.Exit(NOT_PASSED)


def _validated(config: Path, acceptance: Path, folder: Path, version: str | None, *, force: bool) -> Protocol:
    """Return the protocol once it is written. Raises StreamadError, and typer.Exit if a person stopped it."""
    from streamad.commands.validate.judging import validated  # noqa: PLC0415 - help needs none of it
    from streamad.commands.validate.running import InterruptedRunError  # noqa: PLC0415
    from streamad.validation.expectations import load_acceptance  # noqa: PLC0415

    plant = load_whole_plant(config)
    versions = versions_asked(version, plant.settings)
    wanted = load_acceptance(acceptance)
    recordings = [local_url(each.recordings, acceptance.parent) for each in wanted.data]
    _check_folder(plant, folder, recordings, force=force)
    try:
        protocol = run_async(validated(plant, wanted, acceptance, versions))
    except InterruptedRunError:
        raise KeyboardInterrupt from None
    _write(protocol, folder)
    return protocol


def _check_folder(plant: Plant, folder: Path, recordings: Sequence[str], *, force: bool) -> None:
    """Raise UsageError if the protocol cannot be written there, such as among ``recordings``."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder} is a file: name a folder")
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not os.access(there, os.W_OK):  # the runs may take hours
        raise UsageError(f"--out {folder}: nothing can be written to {there}: name another folder")
    for name in (_JSON, _PAGE):
        for url in recordings:
            check_out(plant, folder / name, is_recording=False, also_read=url)
        if (folder / name).exists() and not force:
            raise UsageError(f"{folder} already holds {name}: name another folder with --out, or write --force")


def _write(protocol: Protocol, folder: Path) -> None:
    """Write both files, or none. Raises OutputError."""
    from streamad.system.files import write_atomically, writing  # noqa: PLC0415
    from streamad.validation.page import page_of  # noqa: PLC0415 - jinja2
    from streamad.validation.protocol import encode_protocol  # noqa: PLC0415

    content = encode_protocol(protocol)
    page = page_of(protocol, content)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with writing(folder / _PAGE):
        (folder / _PAGE).unlink(missing_ok=True)  # an earlier page must not stand beside other figures
    write_atomically(folder / _JSON, content)
    try:
        write_atomically(folder / _PAGE, page.encode())
    except BaseException:
        with suppress(OSError):
            (folder / _JSON).unlink()
        raise


def _print(protocol: Protocol, page: Path) -> None:
    from rich.table import Table  # noqa: PLC0415

    from streamad.validation.page import result_text  # noqa: PLC0415

    table = Table("", "", "expected", "found", "outcome", box=None, padding=(0, 2, 0, 0))
    for number, line in enumerate(protocol.lines, start=1):
        table.add_row(
            str(number), f"{', '.join(line.data)}: {line.what}", line.expected, line.found, _OUTCOMES[line.outcome]
        )
    print_table(table, whole=("outcome",))
    for number, line in enumerate(protocol.lines, start=1):
        if line.outcome != "passed" and line.says:
            out.print(note(f"{number}: {line.says}"))
    for text in protocol.notes:
        out.print(note(text))
    out.print(f"{result_text(protocol)}: {printed(str(page))}")
