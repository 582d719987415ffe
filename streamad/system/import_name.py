"""Says whether another distribution has written into the folder of this package.

PyPI's ``streamad`` is another project with a module of the same name. pip lets both in, the later one replaces
``streamad/__init__.py``, and whichever is uninstalled takes that file along.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

REMEDY = "uninstall both (pip uninstall -y streamad streamad-monitor), then install streamad-monitor as before"


def name_clash() -> str | None:
    """Return what is wrong with the installation, without the remedy; None if nothing is. Takes about 4 ms."""
    try:
        other = f"streamad {version('streamad')}"
    except PackageNotFoundError:
        other = ""
    is_ours = "subscribe" in getattr(sys.modules.get("streamad"), "__all__", ())
    if other:
        done = "will take a file of ours along" if is_ours else "has replaced a file of ours"
        return f"{other} is another project with a module of the same name, and {done}"
    return None if is_ours else "streamad/__init__.py is not that of streamad-monitor: another project has one, too"
