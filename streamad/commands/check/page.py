"""Checks the page: the file of its view, and who may open it."""

from __future__ import annotations

from ipaddress import ip_network

from streamad.commands.check.findings import Finding, failed, failure, ok, warning
from streamad.commands.shared.console import count
from streamad.commands.shared.plants import need_web
from streamad.errors import StreamadError
from streamad.plant import Plant
from streamad.settings.outputs import LOCAL_HOSTS
from streamad.settings.places import VIEW
from streamad.web.login.token import KEY as _TOKEN
from streamad.web.login.token import token_of
from streamad.web.store.view_file import check_place

_USERS = "web.auth.users"
_MOST_ADDRESSES = 1 << 16


def check_page(plant: Plant) -> list[Finding]:
    """Check that the page can have its view, and lets in those who are meant; nothing is found of the defaults."""
    web = plant.settings.web
    found = [*_view(plant), *_token(plant), *_hosts(plant), *_proxy(plant)]
    if web.auth.users is None and web.tls is None:
        return found
    try:
        need_web()
    except StreamadError as error:
        return [*found, *failure("web", error)]
    return [*found, *_users(plant), *_tls(plant)]


def _view(plant: Plant) -> list[Finding]:
    if conflicts := [failed(VIEW, each.message) for each in plant.places.problems() if each.path == VIEW]:
        return conflicts
    try:
        check_place(plant.base_dir / plant.settings.web.view)
    except StreamadError as error:
        return failure(VIEW, error)
    return []


def _token(plant: Plant) -> list[Finding]:
    token = plant.settings.web.auth.token
    if token is None:
        return []
    path = plant.base_dir / token.file
    try:
        token_of(path)
    except StreamadError as error:
        return failure(_TOKEN, error)
    return [ok(_TOKEN, str(path))]


def _hosts(plant: Plant) -> list[Finding]:
    return [
        warning("web.hosts", f"{host!r} is no name that a browser sends (* stands for none): nobody gets in by it",
                "write each name, such as web: {hosts: [streamad.plant.example]}")
        for host in plant.settings.web.hosts if not host or set(host) & set("*/ @?#")
    ]  # fmt: skip


def _proxy(plant: Plant) -> list[Finding]:
    """Check that few may say who somebody is: whoever has a trusted address can be anybody."""
    proxy = plant.settings.web.auth.proxy
    return [
        warning("web.auth.proxy.trusted", f"each of the {network.num_addresses:,} addresses of {network} can act as "
                "anybody", "write the proxy's own, such as trusted: [10.0.0.5/32]")
        for network in map(ip_network, () if proxy is None else proxy.trusted)
        if network.num_addresses > _MOST_ADDRESSES
    ]  # fmt: skip


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
