"""The detector in Python: fit, score and explain arrays and data frames, and hand the same version to ``run``."""

import warnings

from streamad.system.import_name import REMEDY, name_clash

if (_clash := name_clash()) is not None:
    warnings.warn(f"{_clash}: {REMEDY}", stacklevel=2)
