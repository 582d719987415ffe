"""Who fills the memory in the tests is ended, and says where it stood; who does not is left alone."""

from __future__ import annotations

import signal
import subprocess
import sys

HOLDS_MEMORY = """
import faulthandler, sys
faulthandler.enable()
def fill():
    kept = b"x" * 300_000_000
    sys.stdin.read()
fill()
"""
WATCHES = f"""
import subprocess, sys
from tests.support.memory_guard import watch_workers
small = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
large = subprocess.Popen([sys.executable, "-c", {HOLDS_MEMORY!r}], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
watch_workers(most_mb=250)
said = large.stderr.read().decode()
small.communicate(b"\\n")
print(small.returncode, large.wait(), "in fill" in said)
"""


def test_a_child_that_fills_the_memory_is_ended_with_its_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHES], capture_output=True, text=True, check=True, timeout=500)
    assert done.stdout.split() == ["0", str(-signal.SIGABRT), "True"]
