"""How far a window lies from the training windows in one feature space, by three measures.

Legend: B windows, N reference windows, D features, M dimensions of the reference, k neighbours.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]

MEASURES = ("local_distance", "leverage", "largest_z")
"""The measures in the order of the columns of ``Neighbours``."""
MAX_DIMENSIONS = 512
N_NEIGHBOURS = 5
LOCALITY = (0.75, 0.9)
"""The least and the largest power of the neighbours' own values; chosen in benchmarks/detector."""
_RIDGE = 0.01  # of the mean squared distance from the centre
_LEAST = 0.02  # of the median distance: a distance is the root of its square and this one's
_LEAST_OF_NORM = 0.01  # the same, of a window's distance from the centre: where windows repeat, rounding is the rest
_LEAST_Z = 0.1  # added to the largest z: what counts as none
_LARGEST = 1e4  # of a standardised feature, so that no square overflows
_SURE = 0.1  # of logarithms: neighbours' values that differ by less say little about the power
_FOLDS = 4
_ROWS = 64  # windows scored at once: bounds the memory
_COLUMNS = 256
_N_SPARE = 7  # candidates beyond the k nearest
_NEARLY = (1e-4, 0.02)
"""How far beyond the k-th distance a window still counts as a neighbour, in part: up to the last candidate."""


class Neighbours(nn.Module):
    """Maps features [B, D] to the logarithms of three distances from the training windows [B, 3].

    ``local_distance``: the mean distance to the k nearest training windows, divided by what these neighbours have
    themselves, to the power of ``locality`` (after LOF: Breunig et al., SIGMOD 2000), since modes of normal differ in
    spread. The power is that which explains the training windows' own values, within narrow bounds.

    ``leverage``: the standard deviation that a Gaussian process with a linear kernel and an unknown mean has at the
    window (Kemmler et al., Pattern Recognition 46, 2013), divided likewise: the distance that is left after the
    directions in which training windows vary have been discounted.

    ``largest_z``: the largest deviation of a single standardised feature, the control chart of every feature at once.

    All are continuous functions of the features, and no small number is the difference of large ones: the order of a
    sum moves a logarithm by no more than some 1e-6. |a|^2 + |b|^2 - 2ab finds candidates alone, their differences give
    the distances; a window at nearly the k-th distance is a neighbour in part, so that rounding chooses none.
    """

    def __init__(self, reference: "Reference") -> None:
        super().__init__()
        self.n_neighbours = reference.n_neighbours
        self.n_candidates = reference.n_candidates
        self.least_square = reference.floor**2
        self.ridge = reference.ridge
        self.of_distance, self.of_leverage = reference.locality
        self.largest = _LARGEST
        self.root, self.least_z = math.sqrt(len(reference.mean)), _LEAST_Z
        self.least_near, self.most_near = _NEARLY
        self.register_buffer("mean_D", torch.from_numpy(reference.mean).float())
        self.register_buffer("factor_D", torch.from_numpy(reference.factor).float())
        self.register_buffer("basis_DM", torch.from_numpy(reference.basis).half())
        self.register_buffer("points_NM", torch.from_numpy(reference.points).half())
        self.register_buffer("outside_N", torch.from_numpy(reference.outside).float())
        self.register_buffer("squares_N", torch.from_numpy(reference.squares).float())
        self.register_buffer("weight_M", torch.from_numpy(reference.weight).float())
        self.register_buffer("own_N2", torch.from_numpy(reference.own).float())

    mean_D: Tensor  # noqa: N815 - a shape suffix
    factor_D: Tensor  # noqa: N815
    basis_DM: Tensor  # noqa: N815
    points_NM: Tensor  # noqa: N815
    outside_N: Tensor  # noqa: N815
    squares_N: Tensor  # noqa: N815
    weight_M: Tensor  # noqa: N815
    own_N2: Tensor  # noqa: N815

    def forward(self, features_BD: Tensor) -> Tensor:
        """Return the logarithms [B, 3]."""
        f_BD = torch.clamp((features_BD - self.mean_D) * self.factor_D, -self.largest, self.largest)
        basis_DM, points_NM = self.basis_DM.to(torch.float32), self.points_NM.to(torch.float32)
        z_BM = torch.matmul(f_BD, basis_DM)
        rest_BD = f_BD - torch.matmul(z_BM, basis_DM.transpose(0, 1))
        outside_B1 = (rest_BD * rest_BD).sum(dim=1, keepdim=True)
        closeness_BN = self.squares_N - 2.0 * torch.matmul(z_BM, points_NM.transpose(0, 1))
        index_Bn = torch.topk(closeness_BN, self.n_candidates, dim=1, largest=False)[1]
        apart_BnM = z_BM.unsqueeze(1) - points_NM[index_Bn]
        squares_Bn = (apart_BnM * apart_BnM).sum(dim=2) + outside_B1 + self.outside_N[index_Bn]
        distance_Bn = torch.sqrt(squares_Bn + self.least_square)
        nearest_Bk = torch.topk(distance_Bn, self.n_neighbours, dim=1, largest=False)[0]
        beyond_Bn = distance_Bn / nearest_Bk.amax(dim=1, keepdim=True) - 1.0
        nearly_B1 = torch.clamp(beyond_Bn.amax(dim=1, keepdim=True), self.least_near, self.most_near)
        share_Bn = torch.clamp(1.0 - beyond_Bn / nearly_B1, 0.0, 1.0)
        theirs_B2 = (self.own_N2[index_Bn] * share_Bn.unsqueeze(2)).sum(dim=1) / share_Bn.sum(dim=1, keepdim=True)
        variance_B1 = (z_BM * z_BM * self.weight_M).sum(dim=1, keepdim=True) + outside_B1 + self.ridge
        local_B1 = torch.log(nearest_Bk.mean(dim=1, keepdim=True)) - self.of_distance * theirs_B2[:, :1]
        leverage_B1 = 0.5 * torch.log(variance_B1) - self.of_leverage * theirs_B2[:, 1:]
        largest_B1 = torch.log(f_BD.abs().amax(dim=1, keepdim=True) * self.root + self.least_z)
        return torch.cat([local_B1, leverage_B1, largest_B1], dim=1)


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """The training windows in one feature space, as ``Neighbours`` needs them.

    ``mean`` and ``factor`` [D] standardise features. ``basis`` [D, M] holds orthonormal directions, ``points`` [N, M]
    the training windows along them, ``outside`` [N] the squares of what lies outside of them, ``squares`` [N] those of
    the points. ``weight`` [M] is the share of a square that training does not explain. ``own`` [N, 2] are the
    logarithms of the training windows' own distance and leverage, each without itself; ``training_logs`` [N, 3] what
    ``Neighbours`` would give for each training window if it were not among them: exactly if the basis spans all of
    them, else from folds.
    """

    mean: Matrix
    factor: Matrix
    basis: Matrix
    points: Matrix
    outside: Matrix
    squares: Matrix
    weight: Matrix
    own: Matrix
    n_neighbours: int
    n_candidates: int
    floor: float
    ridge: float
    locality: tuple[float, float]
    training_logs: Matrix


def fit_reference(
    features_ND: npt.NDArray[np.floating],
    locality: tuple[float, float] = LOCALITY,
    damping: float = 1.0,
    max_dimensions: int = MAX_DIMENSIONS,
) -> Reference:
    """Return the reference of training windows' features [N, D], N at least 3.

    ``locality`` bounds the power of the neighbours' own values. A feature is centred and divided by the root of its
    variance plus ``damping`` times the mean variance of all features: one that hardly varies in training does not
    decide alone. The basis has at most ``max_dimensions`` directions. The basis and the points are those of half
    precision, so that the values of training windows are exactly what the module computes.

    Law: a new window of the same process has the same distribution of logarithms as ``training_logs``. A basis of
    fewer directions than windows is drawn to its training windows: less of them lies outside it than of a new window.
    Then each window's logarithms come from a reference of the other three folds, with three quarters of the directions.
    """
    reference = _reference(features_ND, locality, damping, max_dimensions)
    if len(features_ND) - 1 <= max_dimensions:
        return reference
    logs = reference.training_logs.copy()
    of_fold = np.random.default_rng(0).permutation(len(features_ND)) % _FOLDS  # modes may alternate
    for fold in range(_FOLDS):
        is_held_out = of_fold == fold
        part = max_dimensions * (_FOLDS - 1) // _FOLDS
        others = Neighbours(_reference(features_ND[~is_held_out], locality, damping, part))
        held_out = torch.from_numpy(features_ND[is_held_out].astype(np.float32))
        with torch.inference_mode():
            logs[is_held_out] = torch.cat([others(each) for each in torch.split(held_out, _ROWS)]).numpy()
    return replace(reference, training_logs=logs)


def _reference(
    features_ND: npt.NDArray[np.floating], locality: tuple[float, float], damping: float, max_dimensions: int
) -> Reference:
    features = features_ND.astype(np.float64)
    n, n_features = features.shape
    mean, variance = features.mean(axis=0), features.var(axis=0)
    factor = 1.0 / np.sqrt((variance + damping * max(float(variance.mean()), 1e-12)) * n_features)
    rows = (features - mean) * factor
    basis = _principal_directions(rows, max_dimensions).astype(np.float16).astype(np.float64)
    along = rows @ basis
    points = along.astype(np.float16).astype(np.float64)
    outside = ((rows - along @ basis.T) ** 2).sum(axis=1)
    squares = (rows**2).sum(axis=1)
    ridge = max(_RIDGE * float(squares.mean()), 1e-6)
    distances = np.sqrt(distances_of(along, points) ** 2 + outside[:, None] + outside)
    np.fill_diagonal(distances, np.inf)
    k = min(N_NEIGHBOURS, n - 2)
    usual = float(np.median(np.partition(distances, k - 1, axis=1)[:, :k].mean(axis=1)))
    floor = max(_LEAST * usual, _LEAST_OF_NORM * math.sqrt(float(squares.mean())), 1e-4)
    eigenvalues = (points**2).sum(axis=0)
    inverse = _inverse_kernel(points, eigenvalues, ridge)
    own, theirs = _without_itself(np.sqrt(distances**2 + floor**2), inverse, k)
    if n - 1 > max_dimensions:  # then what training windows have themselves is not what new ones would have
        locality = (locality[0], locality[0])
    powers = (_power(own[:, 0], theirs[:, 0], locality), _power(own[:, 1], theirs[:, 1], locality))
    largest = np.log(_largest_z_without_itself(features, mean, variance, damping) + _LEAST_Z)
    return Reference(
        mean=mean,
        factor=factor,
        basis=basis,
        points=points,
        outside=outside,
        squares=(points**2).sum(axis=1) + outside,
        weight=ridge / (eigenvalues + ridge),
        own=own,
        n_neighbours=k,
        n_candidates=_n_candidates(k, n),
        floor=floor,
        ridge=ridge * (1.0 + 1.0 / n),
        locality=powers,
        training_logs=np.column_stack([own - np.array(powers) * theirs, largest]),
    )


def _n_candidates(k: int, n: int) -> int:
    return min(k + _N_SPARE, n - 1)


def _principal_directions(rows: Matrix, max_dimensions: int) -> Matrix:
    """Return the principal directions [D, M] of centred ``rows`` [N, D], those of largest variance."""
    eigenvalues, vectors = np.linalg.eigh(rows @ rows.T)
    most = min(len(rows) - 1, max_dimensions)
    eigenvalues, vectors = eigenvalues[::-1][:most], vectors[:, ::-1][:, :most]
    kept = eigenvalues > max(1e-9 * float(eigenvalues[0]), 1e-12)
    kept[0] = True  # of equal windows, too, there is a direction: it has no weight
    directions: Matrix = rows.T @ (vectors[:, kept] / np.sqrt(np.maximum(eigenvalues[kept], 1e-12)))
    return directions


def distances_of(rows: Matrix, points: Matrix) -> Matrix:
    """Return the distances [N, P] of ``rows`` [N, M] from ``points`` [P, M]."""
    squares = (rows**2).sum(axis=1)[:, None] + (points**2).sum(axis=1) - 2.0 * (rows @ points.T)
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


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


def _without_itself(distances: Matrix, inverse: Matrix, k: int) -> tuple[Matrix, Matrix]:
    """Return the logarithms [N, 2] of each window's distance and leverage without itself, and its neighbours' [N, 2].

    The neighbours' leave out the window, too: a new window is not among their neighbours either.
    """
    n = len(distances)
    order = np.argsort(distances, axis=1, kind="stable")[:, : max(k + 1, _n_candidates(k, n))]
    nearest = np.take_along_axis(distances, order, axis=1)
    diagonal = np.diag(inverse)
    sums = nearest[:, :k].sum(axis=1)
    own = np.stack([np.log(sums / k), -0.5 * np.log(diagonal)], axis=1)
    is_neighbour = np.zeros((n, n), np.bool_)
    np.put_along_axis(is_neighbour, order[:, :k], values=True, axis=1)
    window, theirs = np.arange(n)[:, None], order[:, : _n_candidates(k, n)]
    without = np.where(is_neighbour[theirs, window], nearest[theirs, k] - distances[theirs, window], 0.0)
    precision = diagonal[theirs] - inverse[window, theirs] ** 2 / diagonal[window]
    logs = np.stack([np.log((sums[theirs] + without) / k), -0.5 * np.log(np.maximum(precision, 1e-12))], axis=2)
    beyond = nearest[:, : _n_candidates(k, n)] / nearest[:, k - 1 : k] - 1.0
    share = np.clip(1.0 - beyond / np.clip(beyond[:, -1:], *_NEARLY), 0.0, 1.0)[:, :, None]
    return own, (logs * share).sum(axis=1) / share.sum(axis=1)


def _power(own: Vector, theirs: Vector, bounds: tuple[float, float]) -> float:
    """Return the slope of the windows' values [N] over their neighbours', drawn to the least of the ``bounds``."""
    apart, of_theirs = own - np.median(own), theirs - np.median(theirs)
    prior = len(own) * _SURE**2
    slope = (float(apart @ of_theirs) + bounds[0] * prior) / (float(of_theirs @ of_theirs) + prior)
    return float(np.clip(slope, *bounds))


def _largest_z_without_itself(features: Matrix, mean: Vector, variance: Vector, damping: float) -> Vector:
    """Return each window's largest z [N] by the mean and the variances of all other windows."""
    n, n_features = features.shape
    blocks = [slice(start, start + _COLUMNS) for start in range(0, n_features, _COLUMNS)]  # bounds the memory
    apart = sum(((features[:, block] - mean[block]) ** 2).sum(axis=1) for block in blocks) / n_features
    usual = np.maximum(float(variance.mean()) - apart / (n - 1), 1e-12)[:, None]
    largest = np.zeros(n)
    for block in blocks:
        apart = (features[:, block] - mean[block]) ** 2
        others = np.maximum(variance[block] - apart / (n - 1), 0.0) + damping * usual
        largest = np.maximum(largest, (apart / others).max(axis=1))
    return np.asarray(np.sqrt(largest / (n / (n - 1))) * (n / (n - 1)))
