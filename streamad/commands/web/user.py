"""``streamad web user``: adds, lists and removes those who log in to the page with a password."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from streamad.commands.shared.console import ConfigOption, JsonOption, err, note, out, print_json, print_table
from streamad.commands.shared.plants import load_plant, need_web
from streamad.errors import UsageError
from streamad.plant import Plant
from streamad.web.login.users import User, editing, new_name, plain_name, read_users

user = typer.Typer(
    help="Add, list and remove those who log in to the page with a password (web.auth.users).", no_args_is_help=True
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
_LONGEST_LINE = 10_000


class RoleChoice(StrEnum):
    """The roles, as the command line takes them."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ENGINEER = "engineer"


@user.command("add")
def add(
    name: NameArgument,
    role: Annotated[
        RoleChoice,
        typer.Option(help="viewer: reads; operator: judges alerts, too; engineer: acts on models, too (web.allow)."),
    ],
    config: ConfigOption = Path("plant.yaml"),
) -> None:
    """Add a user. The password is asked for twice, or is the first line of standard input.

    The page lets the user in at once, without a restart.

    Example: streamad web user add kim --role operator
    """
    path = _file_of(load_plant(config))
    need_web()
    name = new_name(name, read_users(path) if path.exists() else {})
    password = _new_hash(name)  # nobody waits for the file while a person types
    with editing(path) as users:
        users[new_name(name, users)] = User(role.value, password)
    err.print(note(f"{name} may log in as {role.value} ({path})"))


@user.command("list")
def list_users(config: ConfigOption = Path("plant.yaml"), as_json: JsonOption = False) -> None:
    """List the users and their roles.

    Example: streamad web user list
    """
    users = read_users(_file_of(load_plant(config)))
    if as_json:
        print_json({"users": [{"name": name, "role": each.role} for name, each in users.items()]})
        return
    table = Table("user", "role", box=None, padding=(0, 1, 0, 0))
    for name, each in users.items():
        table.add_row(name, each.role)
    if users:
        print_table(table, whole=("user",))
    else:
        out.print("no user yet")


@user.command("remove")
def remove(name: NameArgument, config: ConfigOption = Path("plant.yaml")) -> None:
    """Remove a user; the user's sessions end at once.

    Example: streamad web user remove kim
    """
    with editing(_file_of(load_plant(config))) as users:
        del users[_known(name, users)]
    err.print(note(f"{plain_name(name)} may not log in any more"))


@user.command("password")
def change_password(name: NameArgument, config: ConfigOption = Path("plant.yaml")) -> None:
    """Change a user's password; the user's sessions end at once.

    Example: streamad web user password kim
    """
    path = _file_of(load_plant(config))
    need_web()
    known = _known(name, read_users(path))
    password = _new_hash(known)
    with editing(path) as users:
        users[known] = User(users[_known(known, users)].role, password)
    err.print(note(f"{known} has a new password"))


def _file_of(plant: Plant) -> Path:
    """Return the file of users. Raises UsageError if the config names none."""
    users = plant.settings.web.auth.users
    if users is None:
        raise UsageError("the config names no file of users: write web: {auth: {users: users.json}}")
    return plant.base_dir / users


def _known(name: str, users: Mapping[str, User]) -> str:
    name = plain_name(name)
    if name not in users:
        raise UsageError(f"there is no user {name}: streamad web user list shows them")
    return name


def _new_hash(name: str) -> str:
    """Ask for a new password, and return its hash. Raises UsageError."""
    from streamad.web.login.passwords import hashed, password_problem  # noqa: PLC0415 - an extra

    given = _asked(name)
    if (why := password_problem(given, name)) is not None:
        raise UsageError(f"{why}: nothing was changed")
    return hashed(given)


def _asked(name: str) -> str:
    if sys.stdin.isatty():
        first = typer.prompt(f"password of {name}", hide_input=True, err=True)
        if first != typer.prompt("once more", hide_input=True, err=True):
            raise UsageError("the passwords differ: nothing was changed")
        return str(first)
    line = sys.stdin.buffer.readline(_LONGEST_LINE)
    try:
        return line.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise UsageError("the password on standard input is not UTF-8: nothing was changed") from None
