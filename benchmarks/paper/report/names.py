"""The names of methods and data sets in tables and figures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

METHOD_NAMES: Final = {
    "oc_svm": "OC-SVM",
    "isolation_forest": "isolation forest",
    "lof": "LOF",
    "rnn": "RNN",
    "lstm_ed": "LSTM-ED",
    "deep_svdd": "Deep SVDD",
    "dagmm": "DAGMM",
    "goad": "GOAD",
    "drocc": "DROCC",
    "fixed_transformations": "fixed Ts",
    "neutral_ad": "NeuTraL AD",
    "transformation_prediction": "learned Ts, L_P",
    "simclr": "learned Ts, L_C",
    "minirocket": "MiniRocket, nearest",
    "rockad": "ROCKAD",
    "nearest": "nearest neighbour",
}

DATASET_NAMES: Final = {
    "spoken_arabic_digits": "SAD",
    "natops": "NATOPS",
    "character_trajectories": "CT",
    "epilepsy": "EPSY",
    "racket_sports": "RS",
    "arrhythmia": "Arrhythmia",
    "thyroid": "Thyroid",
    "kdd": "KDD",
    "kdd_rev": "KDDRev",
}


def in_order(methods: Iterable[str]) -> list[str]:
    """Return ``methods`` in the order of ``METHOD_NAMES``, unknown ones last."""
    known = list(METHOD_NAMES)
    return sorted(methods, key=lambda method: (known.index(method) if method in known else len(known), method))
