# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {name: python3, display_name: Python 3}
# ---

# %% [markdown]
# # From arrays to alerts
# A detector learns from normal batches, and a false-alarm rate that you state says when a batch alerts.

# %%
import numpy as np

import streamad

rng = np.random.default_rng(7)


def batches(n: int, fault: bool = False) -> np.ndarray:
    """Return n batches of two channels, a temperature and a pressure, with 60 points each: [n, 2, 60]."""
    t = np.linspace(0, 1, 60)
    heat = 20 + 60 * t ** rng.normal(1, 0.05, (n, 1))
    X = np.stack([heat, 1 + heat / 80], axis=1) + rng.normal(0, [[0.3], [0.01]], (n, 2, 60))
    if fault:
        X[:, 1, 35:] -= 0.15  # the pressure falls, and the temperature does not
    return X


# %% [markdown]
# X has the axes sequences, channels, points. Sequences of different length are a list of arrays [channels, points].

# %%
model = streamad.fit(
    batches(160), channels=["temp", "pressure"], units=["°C", "bar"], false_alarm_rate=0.02, detector="pca"
)
model

# %% [markdown]
# Scores are high for anomalies. The p-value of a normal batch is at most 0.02 in 2 % of the cases: that is the rate.

# %%
fresh, faulty = batches(100), batches(5, fault=True)
print("false alarms:", model.predict(fresh).mean(), "found:", model.predict(faulty).mean())
model.p_values(faulty)

# %% [markdown]
# Which channel, and when?

# %%
why = model.explain(faulty[0])
why

# %%
picture = why.plot()
picture

# %%
assert model.predict(faulty).all()
assert next(iter(why.channels)) == "pressure"
