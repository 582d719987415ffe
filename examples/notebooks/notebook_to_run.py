# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {name: python3, display_name: Python 3}
# ---

# %% [markdown]
# # From a notebook to `streamad run`
# The model that was tried here is the version that the monitor serves, byte for byte.

# %%
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import streamad

rng = np.random.default_rng(5)
folder = Path(tempfile.mkdtemp())


def rows(n: int, name: str, fault: bool = False) -> pd.DataFrame:
    """Return n batches as a historian exports them: a row for each point, with batch id and time."""
    frames = []
    for batch in range(n):
        values = np.sin(np.linspace(0, 6, 40)) + rng.normal(0, 0.1, 40)
        values[20:] += 2.0 * fault
        times = pd.Timestamp("2026-01-05", tz="UTC") + pd.to_timedelta(3600 * batch + np.arange(40), unit="s")
        frames.append(pd.DataFrame({"batch": f"{name}-{batch}", "ts": times, "level": values}))
    return pd.concat(frames)


# %% [markdown]
# A data frame needs the columns of the batch's id and of the time; the others are the channels.

# %%
model = streamad.fit(
    rows(60, "train"), id="batch", time="ts", units={"level": "m"}, false_alarm_rate=0.05, detector="nearest"
)
model.save(folder / "registry")

# %% [markdown]
# `plant_yaml` writes the config of the model: files of rows are read by the columns of the data frame. Further
# keys, such as `decode={...}` and `sequences={...}`, describe other sources; `streamad check` tries the config.

# %%
today = pd.concat([rows(6, "ok"), rows(1, "odd", fault=True).assign(ts=lambda each: each["ts"] + pd.Timedelta("1D"))])
today.to_csv(folder / "today.csv", index=False)
(folder / "plant.yaml").write_text(model.plant_yaml("today.csv", sinks={"alerts": "alerts.jsonl"}))

# %% [markdown]
# The monitor reads the file to its end; a topic of Kafka never ends. A later run resumes where this one stopped.

# %%
command = [sys.executable, "-m", "streamad", "run"]
print(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stderr)
alerts = [json.loads(line) for line in (folder / "alerts.jsonl").read_text().splitlines()]
[(each["sequence"], each["p_value"]) for each in alerts]

# %% [markdown]
# And back: `load` takes the version in service, whoever trained it.

# %%
again = streamad.load(folder / "plant.yaml")
assert again.predict(rows(3, "odd", fault=True)).all()
assert "odd-0" in [each["sequence"] for each in alerts]
