"""What only some installations have."""

from __future__ import annotations

from importlib.util import find_spec

from streamad.errors import PluginError


def need_web() -> None:
    """Raise PluginError if what the extra ``web`` installs is missing."""
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise PluginError(f"the page needs {' and '.join(missing)}: pip install 'streamad-monitor[web]'")


def need_notify() -> None:
    """Raise PluginError if what the extra ``notify`` installs for webhooks is missing."""
    missing = [name for name in ("httpx2", "stamina", "standardwebhooks") if find_spec(name) is None]
    if missing:
        raise PluginError(f"notices need {' and '.join(missing)}: pip install 'streamad-monitor[notify]'")
