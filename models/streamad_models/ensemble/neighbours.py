"""How far a window lies from the training windows in one feature space, by two measures.

Legend: B windows, N reference windows, D features, M dimensions of the reference, k neighbours.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

Matrix = npt.NDArray[np.float64]

MEASURES = ("local_distance", "leverage")
"""The measures in the order of the columns of ``Neighbours``."""
MAX_DIMENSIONS = 512
N_NEIGHBOURS = 5
LOCALITY = 0.75  # power of the neighbours' own value; chosen in benchmarks/detector
_RIDGE = 0.01  # of the mean squared distance from the centre
_LEAST = 1e-3  # of the median distance: what counts as distance 0
_LARGEST = 1e4  # of a standardised feature, so that no square overflows
_FOLDS = 4


class Neighbours(nn.Module):
    """Maps features [B, D] to the logarithms of two distances from the training windows [B, 2].

    ``local_distance``: the mean distance to the k nearest training windows, divided by what these neighbours have
    themselves, to the power of 0.75 (after LOF: Breunig et al., SIGMOD 2000), since modes of normal differ in spread.

    ``leverage``: the standard deviation that a Gaussian process with a linear kernel and an unknown mean has at the
    window (Kemmler et al., Pattern Recognition 46, 2013), divided likewise: the distance that is left after the
    directions in which training windows vary have been discounted.
    """

    def __init__(self, reference: "Reference") -> None:
        super().__init__()
        self.n_neighbours = reference.n_neighbours
        self.floor = reference.floor
        self.ridge = reference.ridge
        self.locality = reference.locality
        self.largest = _LARGEST
        self.register_buffer("mean_D", torch.from_numpy(reference.mean).float())
        self.register_buffer("factor_D", torch.from_numpy(reference.factor).float())
        self.register_buffer("basis_DM", torch.from_numpy(reference.basis).half())
        self.register_buffer("points_NM", torch.from_numpy(reference.points).half())
        self.register_buffer("squares_N", torch.from_numpy(reference.squares).float())
        self.register_buffer("weight_M", torch.from_numpy(reference.weight).float())
        self.register_buffer("own_N2", torch.from_numpy(reference.own).float())

    mean_D: Tensor  # noqa: N815 - a shape suffix
    factor_D: Tensor  # noqa: N815
    basis_DM: Tensor  # noqa: N815
    points_NM: Tensor  # noqa: N815
    squares_N: Tensor  # noqa: N815
    weight_M: Tensor  # noqa: N815
    own_N2: Tensor  # noqa: N815

    def forward(self, features_BD: Tensor) -> Tensor:
        """Return the logarithms [B, 2]."""
        f_BD = torch.clamp((features_BD - self.mean_D) * self.factor_D, -self.largest, self.largest)
        z_BM = torch.matmul(f_BD, self.basis_DM.to(torch.float32))
        inside_B1 = (z_BM * z_BM).sum(dim=1, keepdim=True)
        outside_B1 = torch.clamp((f_BD * f_BD).sum(dim=1, keepdim=True) - inside_B1, min=0.0)
        products_BN = torch.matmul(z_BM, self.points_NM.to(torch.float32).transpose(0, 1))
        squares_BN = inside_B1 + outside_B1 + self.squares_N - 2.0 * products_BN
        distance_BN = torch.sqrt(torch.clamp(squares_BN, min=0.0))
        nearest_Bk, index_Bk = torch.topk(distance_BN, self.n_neighbours, dim=1, largest=False)
        variance_B1 = (z_BM * z_BM * self.weight_M).sum(dim=1, keepdim=True) + outside_B1 + self.ridge
        distance_B1 = nearest_Bk.mean(dim=1, keepdim=True) + self.floor
        logs_B2 = torch.cat([torch.log(distance_B1), 0.5 * torch.log(variance_B1)], dim=1)
        return logs_B2 - self.locality * self.own_N2[index_Bk].mean(dim=1)


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """The training windows in one feature space, as ``Neighbours`` needs them.

    ``mean`` and ``factor`` [D] standardise features. ``basis`` [D, M] holds orthonormal directions, ``points`` [N, M]
    the training windows along them, ``squares`` [N] their squared distances from the mean. ``weight`` [M] is the
    share of a square that training does not explain. ``own`` [N, 2] are the logarithms of the training windows' own
    distance and leverage, each without itself; ``training_logs`` [N, 2] what ``Neighbours`` would give for each
    training window if it were not among them: exactly if the basis spans all of them, else from folds.
    """

    mean: Matrix
    factor: Matrix
    basis: Matrix
    points: Matrix
    squares: Matrix
    weight: Matrix
    own: Matrix
    n_neighbours: int
    floor: float
    ridge: float
    locality: float
    training_logs: Matrix


def fit_reference(
    features_ND: npt.NDArray[np.floating], locality: float = LOCALITY, max_dimensions: int = MAX_DIMENSIONS
) -> Reference:
    """Return the reference of training windows' features [N, D], N at least 3.

    ``locality`` is the power of the neighbours' own values. A feature is centred and divided by the root of its
    variance plus the mean variance of all features: one that hardly varies in training does not decide alone. The
    basis has at most ``max_dimensions`` directions. The basis and the points are those of half precision, so that the
    values of training windows are exactly what the module computes.

    Law: a new window of the same process has the same distribution of logarithms as ``training_logs``. A basis of
    fewer directions than windows is drawn to its training windows: less of them lies outside it than of a new window.
    Then each window's logarithms come from a reference of the other three folds, with three quarters of the directions.
    """
    reference = _reference(features_ND, locality, max_dimensions)
    if len(features_ND) - 1 <= max_dimensions:
        return reference
    logs = np.empty_like(reference.training_logs)
    of_fold = np.random.default_rng(0).permutation(len(features_ND)) % _FOLDS  # modes may alternate
    for fold in range(_FOLDS):
        is_held_out = of_fold == fold
        part = max_dimensions * (_FOLDS - 1) // _FOLDS
        others = Neighbours(_reference(features_ND[~is_held_out], locality, part))
        held_out = torch.from_numpy(features_ND[is_held_out].astype(np.float32))
        with torch.inference_mode():
            logs[is_held_out] = others(held_out).numpy()
    return replace(reference, training_logs=logs)


def _reference(features_ND: npt.NDArray[np.floating], locality: float, max_dimensions: int) -> Reference:
    features = features_ND.astype(np.float64)
    n, n_features = features.shape
    mean, variance = features.mean(axis=0), features.var(axis=0)
    factor = 1.0 / np.sqrt((variance + max(float(variance.mean()), 1e-12)) * n_features)
    rows = (features - mean) * factor
    basis = _principal_directions(rows, max_dimensions).astype(np.float16).astype(np.float64)
    points = (rows @ basis).astype(np.float16).astype(np.float64)
    squares = (rows**2).sum(axis=1)
    ridge = max(_RIDGE * float(squares.mean()), 1e-6)
    distances = distances_of(points, squares)
    np.fill_diagonal(distances, np.inf)
    k = min(N_NEIGHBOURS, n - 2)
    floor = _LEAST * max(float(np.median(np.sort(distances, axis=1)[:, :k].mean(axis=1))), 1e-3)
    eigenvalues = (points**2).sum(axis=0)
    inverse = _inverse_kernel(points, eigenvalues, ridge)
    own, training_own = _without_itself(distances, inverse, k, floor)
    return Reference(
        mean=mean,
        factor=factor,
        basis=basis,
        points=points,
        squares=squares,
        weight=ridge / (eigenvalues + ridge),
        own=own,
        n_neighbours=k,
        floor=floor,
        ridge=ridge * (1.0 + 1.0 / n),
        locality=locality,
        training_logs=own - locality * training_own,
    )


def _principal_directions(rows: Matrix, max_dimensions: int) -> Matrix:
    """Return the principal directions [D, M] of centred ``rows`` [N, D], those of largest variance."""
    eigenvalues, vectors = np.linalg.eigh(rows @ rows.T)
    most = min(len(rows) - 1, max_dimensions)
    eigenvalues, vectors = eigenvalues[::-1][:most], vectors[:, ::-1][:, :most]
    kept = eigenvalues > max(1e-9 * float(eigenvalues[0]), 1e-12)
    kept[0] = True  # of equal windows, too, there is a direction: it has no weight
    directions: Matrix = rows.T @ (vectors[:, kept] / np.sqrt(np.maximum(eigenvalues[kept], 1e-12)))
    return directions


def distances_of(points: Matrix, squares: Matrix) -> Matrix:
    """Return the distances [N, N] of reference windows, of ``points`` [N, M] and ``squares`` [N], from each other."""
    products = points @ points.T
    distances: Matrix = np.sqrt(np.maximum(squares[:, None] + squares[None] - 2.0 * products, 0.0))
    np.fill_diagonal(distances, 0.0)
    return distances


def _inverse_kernel(points: Matrix, eigenvalues: Matrix, ridge: float) -> Matrix:
    """Return the inverse [N, N] of the kernel matrix of ``points`` with an unknown mean, plus the ridge.

    1 / its diagonal is each window's variance given all others (Rasmussen and Williams 2006, equation 5.12).
    """
    n = len(points)
    unit = points / np.sqrt(np.maximum(eigenvalues, 1e-12))
    rest = np.eye(n) - 1.0 / n - unit @ unit.T
    inverse: Matrix = (unit / (eigenvalues + ridge)) @ unit.T + rest / ridge
    np.fill_diagonal(inverse, np.maximum(np.diag(inverse), 1e-12))
    return inverse


def _without_itself(distances: Matrix, inverse: Matrix, k: int, floor: float) -> tuple[Matrix, Matrix]:
    """Return the logarithms [N, 2] of each window's distance and leverage without itself, and its neighbours' [N, 2].

    The neighbours' leave out the window, too: a new window is not among their neighbours either.
    """
    n = len(distances)
    order = np.argsort(distances, axis=1, kind="stable")[:, : k + 1]
    nearest = np.take_along_axis(distances, order, axis=1)
    diagonal = np.diag(inverse)
    own = np.stack([np.log(nearest[:, :k].mean(axis=1) + floor), -0.5 * np.log(diagonal)], axis=1)
    theirs = np.empty((n, 2))
    for window, neighbours in enumerate(order[:, :k]):
        is_other = order[neighbours] != window
        is_counted = is_other & (np.cumsum(is_other, axis=1) <= k)
        distance = np.where(is_counted, nearest[neighbours], 0.0).sum(axis=1) / k
        precision = diagonal[neighbours] - inverse[window, neighbours] ** 2 / diagonal[window]
        leverage = -0.5 * np.log(np.maximum(precision, 1e-12))
        theirs[window] = np.log(distance + floor).mean(), leverage.mean()
    return own, theirs
