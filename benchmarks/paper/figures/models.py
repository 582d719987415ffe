"""The small models of the figures: NeuTraL AD with the data set's preset, K = 4 if the paper shows four views.

Legend: N windows, K transformations, V = K + 1 views (the original first), C channels, L window length, Z embedding
dimension, n rows of a table, D attributes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.models.reference import SeparateMasks
from benchmarks.paper.data.datasets import Recordings, Task, class_task
from benchmarks.paper.neutral_ad_tabular.detector import NeutralADTabular
from benchmarks.paper.neutral_ad_tabular.options import NeutralADTabularOptions
from streamad.types import WindowSet
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions
from streamad_models.neutral_ad.model import NeutralADModel, contrastive_terms
from streamad_models.torchscript import score_in_chunks

SEED: Final = 0
NORMAL: Final = 0
SAD: Final = NeutralADOptions.from_preset("spoken_arabic_digits")
SAD_FOUR: Final = NeutralADOptions.from_preset(
    "spoken_arabic_digits", n_transformations=4, transformation="multiplicative"
)
NATOPS_FOUR: Final = NeutralADOptions.from_preset("natops", n_transformations=4, transformation="feed_forward")
THYROID_FOUR: Final = NeutralADTabularOptions.from_preset("thyroid", n_transformations=4)

_SHOWN: Final = 150  # points a cloud: more would overlap


def scores_before_and_after(recordings: Recordings, options: NeutralADOptions) -> dict[str, Any]:
    """Return the test split's scores [N] of the untrained and of the trained model, and is_anomaly bool [N]."""
    task = class_task(recordings, (NORMAL,))
    windows, lengths = task.test.values, task.test.lengths
    untrained = NeutralADModel(windows.shape[1], windows.shape[2], options, SEED).eval()
    with torch.no_grad():
        before = score_in_chunks(untrained, torch.device("cpu"), untrained.n_terms, windows, lengths).sum(axis=1)
    fitted = NeutralAD(options).fit(task.train, seed=SEED, device="cpu")
    after = fitted.score(windows, lengths).sum(axis=1)
    return {"before": before, "after": after, "is_anomaly": task.is_anomaly}


def views_of_classes(recordings: Recordings, options: NeutralADOptions) -> dict[str, Any]:
    """Return views, masks, embeddings and scores of test sequences by a model of class 0.

    ``inliers_z``, ``anomalies_z`` [V, n, Z], unit length, and ``inliers_x``, ``anomalies_x`` [V, n, 3] of up to 150
    each; ``example_views`` [classes, V, C, L], ``example_masks`` [classes, K, C, L], ``example_lengths`` and
    ``example_scores`` of the first sequence of each class.
    """
    task, classes = class_task(recordings, (NORMAL,)), recordings.test.classes
    model = NeutralAD(options).fit(task.train, seed=SEED, device="cpu").model.eval()
    draw = np.random.default_rng(SEED)
    clouds = {}
    for name, index in (("inliers", np.flatnonzero(~task.is_anomaly)), ("anomalies", np.flatnonzero(task.is_anomaly))):
        chosen = np.sort(draw.permutation(index)[:_SHOWN])
        clouds[name] = _views(model, task.test.take(chosen))
    axes = principal_axes(clouds["inliers"][0].reshape(-1, _size(clouds["inliers"][0])))
    found: dict[str, Any] = {}
    for name, (views_VNCL, z_VNZ) in clouds.items():
        flat_VNF = views_VNCL.reshape(*views_VNCL.shape[:2], -1)
        found |= {f"{name}_x": (flat_VNF - axes[0]) @ axes[1], f"{name}_z": z_VNZ}
    firsts = np.array([int(np.flatnonzero(classes == number)[0]) for number in np.unique(classes)])
    return found | _examples(model, task.test.take(firsts))


def rank_labels(
    scores: npt.NDArray[np.float32], inliers_z: npt.NDArray[np.float32], options: NeutralADOptions
) -> list[str]:
    """Return each score and the share of inliers, whose embeddings are ``inliers_z`` [V, n, Z], that it is above.

    Most scores lie close to the lowest possible one, so the number alone does not show whether it stands out.
    """
    terms_nK = contrastive_terms(torch.from_numpy(inliers_z).transpose(0, 1), options.temperature)
    inliers = terms_nK.sum(dim=1).numpy()
    return [f"score {score:.3f}, above\n{100 * (inliers < score).mean():.0f} % of inliers" for score in scores]


def _size(views_VNCL: npt.NDArray[np.float32]) -> int:
    return int(np.prod(views_VNCL.shape[2:]))


def _examples(model: NeutralADModel, windows: WindowSet) -> dict[str, Any]:
    views_VNCL, _ = _views(model, windows)
    x_NCL = torch.from_numpy(windows.values)
    with torch.no_grad():
        masks = [network(x_NCL) for network in SeparateMasks(model.transformations).networks]
        masks_NKCL = torch.stack(masks, dim=1)
        terms_NK = model(x_NCL, torch.from_numpy(windows.lengths))
    if model.transformations.multiplicative:
        masks_NKCL = torch.sigmoid(masks_NKCL)
    return {
        "example_views": views_VNCL.transpose(1, 0, 2, 3),
        "example_masks": masks_NKCL.numpy(),
        "example_lengths": windows.lengths,
        "example_scores": terms_NK.sum(dim=1).numpy(),
    }


def _views(model: NeutralADModel, windows: WindowSet) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the views [V, N, C, L] of ``windows``, the original first, and their embeddings [V, N, Z], of length 1."""
    with torch.no_grad():
        x_LNC = model.prepare(torch.from_numpy(windows.values), torch.from_numpy(windows.lengths))
        views_VLNC = torch.cat([x_LNC.unsqueeze(0), model.transformations(x_LNC)])
        z_VNZ = torch.stack([_unit(model.encoder(view_LNC)) for view_LNC in views_VLNC])
    return views_VLNC.permute(0, 2, 3, 1).contiguous().numpy(), z_VNZ.numpy()


def _unit(z_NZ: Tensor) -> Tensor:
    return torch.nn.functional.normalize(z_NZ, dim=1)


def principal_axes(
    points_nF: npt.NDArray[np.float32], n_axes: int = 3
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the mean [F] and the first principal axes [F, 3] of ``points``."""
    mean = points_nF.mean(axis=0)
    return mean, np.linalg.svd(points_nF - mean, full_matrices=False)[2][:n_axes].T


def table_terms(task: Task, options: NeutralADTabularOptions) -> dict[str, Any]:
    """Return the test rows of a table with their masks and terms.

    ``rows`` [n, D], ``masks`` [n, K, D] (T_k(x) - x, added by a residual view), ``terms`` [n, K], ``is_anomaly`` [n].
    """
    fitted = NeutralADTabular(options).fit(task.train, seed=SEED, device="cpu")
    model = fitted.model.eval()
    with torch.no_grad():
        x_nD = model.prepare(torch.from_numpy(task.test.values))
        masks_nKD = (model.transformations(x_nD) - x_nD).transpose(0, 1)
    return {
        "rows": x_nD.numpy(),
        "masks": masks_nKD.contiguous().numpy(),
        "terms": fitted.score(task.test.values, task.test.lengths),
        "is_anomaly": task.is_anomaly,
    }
