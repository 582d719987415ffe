"""Judges data frames of Spark (extra ``spark``): ``judged``, or ``score`` as a function for ``mapInPandas``."""

from __future__ import annotations

__all__ = ["SCHEMA", "judged", "score"]

from streamad.spark.judging import SCHEMA, judged, score
