"""Checks who may open the page: the file of users, and the certificate."""

from __future__ import annotations

from streamad.commands.check.findings import Finding, failed, failure, ok, warning
from streamad.commands.shared.console import count
from streamad.commands.shared.plants import need_web
from streamad.errors import StreamadError
from streamad.plant import Plant
from streamad.settings.outputs import LOCAL_HOSTS

_USERS = "web.auth.users"


def check_page(plant: Plant) -> list[Finding]:
    """Check what the page needs to let people in; no finding if nobody logs in and nothing is encrypted."""
    web = plant.settings.web
    if web.auth.users is None and web.tls is None:
        return []
    try:
        need_web()
    except StreamadError as error:
        return failure("web", error)
    return [*_users(plant), *_tls(plant)]


def _users(plant: Plant) -> list[Finding]:
    from streamad.web.login.users import read_users  # noqa: PLC0415

    web = plant.settings.web
    if web.auth.users is None:
        return []
    path = plant.base_dir / web.auth.users
    try:
        users = read_users(path)
    except StreamadError as error:
        return failure(_USERS, error)
    if not users:
        return [failed(_USERS, f"{path} holds no user", "streamad web user add NAME --role engineer")]
    found = [ok(_USERS, f"{path} ({count(len(users), 'user')})")]
    if all(each.role == "viewer" for each in users.values()):
        found.append(
            warning(_USERS, "all users are viewers: nobody can judge", "streamad web user add --role operator")
        )
    if web.host not in LOCAL_HOSTS and web.tls is None:
        found.append(
            warning("web.tls", f"nobody can log in at {web.host} without https", "set web.tls, or let a proxy encrypt")
        )
    return found


def _tls(plant: Plant) -> list[Finding]:
    from streamad.web.http.tls import checked_tls  # noqa: PLC0415

    try:
        found = checked_tls(plant)
    except StreamadError as error:
        return failure("web.tls", error)
    return [] if found is None else [ok("web.tls", found[0])]
