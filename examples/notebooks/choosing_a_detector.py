# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {name: python3, display_name: Python 3}
# ---

# %% [markdown]
# # Choosing a detector on labelled batches
# Some batches have a label: normal, or the name of a fault. Which kind of detector finds most at the same rate?

# %%
import numpy as np

import streamad

rng = np.random.default_rng(3)


def batches(n: int, fault: str = "normal") -> np.ndarray:
    """Return n batches [n, 2, 50], with a fault that a single reading shows, or one that only the shape shows."""
    t = np.linspace(0, 1, 50)
    X = np.stack([np.sin(6 * t) + np.zeros((n, 50)), np.cos(6 * t) + np.zeros((n, 50))], axis=1)
    X = X * rng.normal(1, 0.05, (n, 1, 1)) + rng.normal(0, 0.05, X.shape)
    if fault == "spike":
        X[np.arange(n), 0, rng.integers(5, 45, n)] += 1.5
    elif fault == "stuck":
        X[:, 1, 25:35] = X[:, 1, 25:26]
    return X


training = batches(200)
X = np.concatenate([batches(60), batches(20, "spike"), batches(20, "stuck")])
labels = ["normal"] * 60 + ["spike"] * 20 + ["stuck"] * 20

# %% [markdown]
# `evaluate` shows what one model finds, by label. `compare` puts several side by side, on the same batches.

# %%
models = {
    kind: streamad.fit(training, false_alarm_rate=0.02, detector=kind) for kind in ("pca", "pointwise", "nearest")
}
found = streamad.compare(models, X, labels)
found

# %%
picture = found.plot()
picture

# %% [markdown]
# The intervals are exact and of 95 %: with 20 faults of a kind they are wide. Take the kind whose interval is above.

# %%
assert {"pointwise", "nearest"} == set(found.beside)
assert found.figures.n_anomalous == 40
