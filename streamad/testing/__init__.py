"""For authors of plug-ins: a clock, a source and a sink in memory, and conformance checks of the ports.

No test framework is needed.
"""

from __future__ import annotations

__all__ = [
    "ListSink",
    "ListSource",
    "ManualClock",
    "Pause",
    "check_detector",
    "check_scorer",
    "check_sink",
    "check_source",
]

from streamad.testing.conformance import check_scorer, check_sink, check_source
from streamad.testing.conformance_detector import check_detector
from streamad.testing.stubs import ListSink, ListSource, ManualClock, Pause
