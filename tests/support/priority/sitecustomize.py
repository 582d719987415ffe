"""A training of a test keeps the priority of its worker: at the lowest one it would wait for all other tests.

Python imports this file when it starts; ``tests/conftest.py`` puts its folder on the path of all processes.
"""

import os

if os.environ.get("TESTS_KEEP_PRIORITY") == "1":
    os.nice = lambda increment: 0  # type: ignore[assignment]
    if hasattr(os, "sched_setscheduler"):
        os.sched_setscheduler = lambda pid, policy, param: None  # type: ignore[assignment]
