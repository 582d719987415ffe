"""A choice of weights on training windows alone, measured and not adopted: modes of normal are held out in turn.

The training windows are clustered; members that find a held-out cluster among the others gain weight. On sets whose
anomalies are other classes it gains a little; on a plant of several recipes it takes the weight from the members that
see a shifted level (docs/model/detector.md). Legend: N training windows, R of them known and B held out, K members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import numpy.typing as npt

from streamad_models.ensemble.fitting import WEIGHTS
from streamad_models.ensemble.neighbours import Reference, distances_of

Matrix = npt.NDArray[np.float64]
Indexes = npt.NDArray[np.int64]

CLUSTERED_BY = ("minirocket", "hydra")
"""The spaces that define modes; a space that defines them finds them more easily than others."""
MAX_WINDOWS = 300
_NUMBERS_OF_CLUSTERS = (2, 3, 4, 6, 8)
_FEWEST_HELD_OUT = 3
_FEWEST_KNOWN = 6
_SHARPNESS = 0.06  # difference of AUC that makes a weight e times smaller, with very many windows
_FEW_WINDOWS = 20  # with so many windows it takes twice that difference
_RIDGE = 0.01  # as in neighbours.py
_UNKNOWN_MEAN = 1e3  # variance of the mean, in mean squared distances: so large that the mean is free


def weights_of(
    distances: Mapping[str, Matrix], prior: Mapping[str, tuple[float, float]], *, n_neighbours: int, locality: float
) -> npt.NDArray[np.float64]:
    """Return the weights [K] of the members: two a space, in the order of ``prior``; their sum is that of the prior's.

    ``distances`` [N, N] are those of training windows in each space. A weight is the prior's times
    exp((AUC - largest AUC) / sharpness), the AUC being the mean over held-out clusters. Too few windows for clusters
    give the prior.
    """
    prior_K = np.array([weight for pair in prior.values() for weight in pair])
    n = len(next(iter(distances.values())))
    of_members = partial(measures, n_neighbours=n_neighbours, locality=locality)
    found = [
        [auc for name in prior for auc in _aucs(*of_members(distances[name], known, held_out))]
        for known, held_out in held_out_modes(distances)
    ]
    if not found:
        return prior_K
    auc_K = np.mean(found, axis=0)
    sharpness = _SHARPNESS * (1 + _FEW_WINDOWS / n)
    weights_K = prior_K * np.exp((auc_K - auc_K[prior_K > 0].max()) / sharpness)
    scaled: npt.NDArray[np.float64] = weights_K * prior_K.sum() / weights_K.sum()
    return scaled


def held_out_modes(distances: Mapping[str, Matrix]) -> Iterator[tuple[Indexes, Indexes]]:
    """Yield known windows [R] and a held-out cluster [B], for every cluster of several clusterings (Ward, 1963).

    Clusters of fewer than three windows, or more than half of all, are not held out.
    """
    from scipy.cluster.hierarchy import fcluster, linkage  # noqa: PLC0415 - not every command needs it
    from scipy.spatial.distance import squareform  # noqa: PLC0415

    scaled = [distances[name] / max(float(np.median(distances[name])), 1e-12) for name in CLUSTERED_BY]
    n = len(scaled[0])
    for joint in (*scaled, np.sum(scaled, axis=0)):
        tree = linkage(squareform(joint, checks=False), "ward") if n > _FEWEST_KNOWN else None
        for n_clusters in _NUMBERS_OF_CLUSTERS:
            if tree is None or n < 4 * n_clusters:
                break
            cluster_N = fcluster(tree, n_clusters, "maxclust")
            for cluster in np.unique(cluster_N):
                held_out, known = np.flatnonzero(cluster_N == cluster), np.flatnonzero(cluster_N != cluster)
                if _FEWEST_HELD_OUT <= len(held_out) <= n / 2 and len(known) >= _FEWEST_KNOWN:
                    yield known, held_out


def measures(
    distances: Matrix, known: Indexes, new: Indexes, *, n_neighbours: int, locality: float
) -> tuple[Matrix, Matrix]:
    """Return the logarithms of local distance and leverage among ``known``: of these without themselves, of ``new``.

    Shapes [R, 2] and [B, 2]. As ``Neighbours`` has them, but from distances alone; a known window's neighbours may
    count it as theirs.
    """
    k = min(n_neighbours, len(known) - 2)
    among_RR, to_BR = distances[np.ix_(known, known)], distances[np.ix_(new, known)]
    leverage_R, leverage_B = _leverages(among_RR**2, to_BR**2)
    others_RR = among_RR + np.diag(np.full(len(known), np.inf))
    floor = 1e-3 * max(float(np.median(others_RR.min(axis=1))), 1e-9)
    nearest_Rk, nearest_Bk = (np.argsort(rows, axis=1, kind="stable")[:, :k] for rows in (others_RR, to_BR))
    distance_R = np.log(np.take_along_axis(others_RR, nearest_Rk, 1).mean(axis=1) + floor)
    distance_B = np.log(np.take_along_axis(to_BR, nearest_Bk, 1).mean(axis=1) + floor)
    own_R2, new_B2 = np.stack([distance_R, leverage_R], axis=1), np.stack([distance_B, leverage_B], axis=1)
    return own_R2 - locality * own_R2[nearest_Rk].mean(axis=1), new_B2 - locality * own_R2[nearest_Bk].mean(axis=1)


def _leverages(among_RR: Matrix, to_BR: Matrix) -> tuple[Matrix, Matrix]:
    """Return the logarithms [R], [B] of a Gaussian process' deviations, from squared distances.

    The kernel of distances is Torgerson's (1952): centred among the known windows.
    """
    mean_R, mean = among_RR.mean(axis=1), float(among_RR.mean())
    kernel_RR = -0.5 * (among_RR - mean_R[:, None] - mean_R[None] + mean)
    cross_BR = -0.5 * (to_BR - to_BR.mean(axis=1, keepdims=True) - mean_R[None] + mean)
    own_B = to_BR.mean(axis=1) - mean / 2
    ridge = max(_RIDGE * float(np.trace(kernel_RR)) / len(kernel_RR), 1e-12)
    free_mean = _UNKNOWN_MEAN * max(mean, 1e-9)
    inverse_RR = np.linalg.inv(kernel_RR + ridge * np.eye(len(kernel_RR)) + free_mean)
    cross_BR = cross_BR + free_mean
    variance_B = own_B + free_mean + ridge - ((cross_BR @ inverse_RR) * cross_BR).sum(axis=1)
    precision_R = np.maximum(np.diag(inverse_RR), 1e-12)
    return -0.5 * np.log(precision_R), 0.5 * np.log(np.maximum(variance_B, ridge * 1e-3))


def _aucs(own_R2: Matrix, new_B2: Matrix) -> list[float]:
    """Return the AUC of each measure: new windows against known ones."""
    aucs = []
    for own_R, new_B in zip(np.sort(own_R2, axis=0).T, new_B2.T, strict=True):
        below = np.searchsorted(own_R, new_B, "left") + np.searchsorted(own_R, new_B, "right")
        aucs.append(float(below.mean()) / (2 * len(own_R)))
    return aucs


def chosen_weights(references: Mapping[str, Reference], seed: int) -> npt.NDArray[np.float64]:
    """Return the weights of all measures, two a space in the order of ``WEIGHTS``, chosen by training windows.

    Of more than 300 reference windows 300 drawn by ``seed`` decide.
    """
    any_reference = next(iter(references.values()))
    drawn = np.random.default_rng(seed).permutation(len(any_reference.points))[:MAX_WINDOWS]
    distances = {name: distances_of(each.points[drawn], each.squares[drawn]) for name, each in references.items()}
    k, locality = any_reference.n_neighbours, any_reference.locality
    return weights_of(distances, WEIGHTS, n_neighbours=k, locality=locality)
