from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from benchmarks.paper.baselines.networks.deep_svdd import DeepSvdd, DeepSvddNetwork, DeepSvddOptions
from streamad.types import WindowSet
from streamad_models.neutral_ad.networks import Encoder
from tests.support.detectors import ROWS, SEQUENCES
from tests.unit.models.small import windows


def options(**changes: Any) -> DeepSvddOptions:
    small = {"embedding_dim": 8, "base_width": 8, "tabular_width": 16, "epochs": 4}
    return DeepSvddOptions.model_validate({**small, **changes})


def network(n_channels: int = 3, length: int = 16, **changes: Any) -> DeepSvddNetwork:
    return DeepSvddNetwork(n_channels, length, options(**changes), torch.Generator().manual_seed(0))


def test_the_training_is_the_published_one() -> None:
    published = DeepSvddOptions()
    assert (published.epochs, published.learning_rate, published.weight_decay) == (150, 1e-4, 0.5e-6)
    assert published.tenth_rate_from == 51


@pytest.mark.parametrize("n", [2, 3, 7])
def test_batch_norm_is_trained_on_few_rows(n: int) -> None:
    few = ROWS.normal.take(list(range(n)))
    fitted = DeepSvdd(options(tabular_norm=True)).fit(few, seed=0, device="cpu")
    assert np.isfinite(fitted.score(few.values, few.lengths)).all()


def test_batches_of_one_row_are_refused_with_batch_norm() -> None:
    with pytest.raises(ValidationError, match="batch norm needs at least 2 rows"):
        options(tabular_norm=True, batch_size=1)


def test_the_centre_is_the_mean_embedding_with_no_entry_close_to_zero() -> None:
    net = network()
    x_BCL, lengths_B = windows(40)
    with torch.no_grad():
        net.before_training(x_BCL, lengths_B)
        z_BZ = net.encoder(x_BCL.permute(2, 0, 1))
    mean_Z, least = z_BZ.mean(dim=0), 0.1 * z_BZ.square().mean().sqrt()
    assert (net.centre_Z.abs() >= least * 0.999).all()
    far = mean_Z.abs() >= least
    assert far.sum() > 0
    torch.testing.assert_close(net.centre_Z[far], mean_Z[far])
    assert (net.centre_Z.sign() == mean_Z.sign()).all()


def test_the_score_is_the_squared_distance_from_the_centre() -> None:
    net = network()
    x_BCL, lengths_B = windows(5)
    net.centre_Z.fill_(0.5)
    with torch.no_grad():
        expected = (net.encoder(x_BCL.permute(2, 0, 1)) - 0.5).square().sum(dim=1)
        torch.testing.assert_close(net(x_BCL, lengths_B), expected[:, None])


def test_no_bias_can_make_every_embedding_the_centre() -> None:
    fitted = DeepSvdd(options()).fit(SEQUENCES.normal, seed=0, device="cpu")
    assert isinstance(fitted.model.encoder, Encoder)
    assert (fitted.model.encoder.bias == 0).all()
    nothing = torch.zeros(1, 3, 24)
    with torch.no_grad():
        score = fitted.model(nothing, torch.tensor([24]))
    torch.testing.assert_close(score[0, 0], fitted.model.centre_Z.square().sum())


def reconstruction_error(net: DeepSvddNetwork, part: WindowSet) -> float:
    """Return the least squares error of the rows from their embeddings, as a share of the rows' own variance."""
    with torch.no_grad():
        z = net.encoder(torch.from_numpy(part.values[:, :, 0])).double().numpy()
    rows = part.values[:, :, 0].astype(np.float64)
    design = np.column_stack([z, np.ones(len(z))])
    left = rows - design @ np.linalg.lstsq(design, rows, rcond=None)[0]
    return float((left**2).sum() / ((rows - rows.mean(axis=0)) ** 2).sum())


def test_the_encoder_of_rows_is_an_autoencoder_s_first() -> None:
    """As published; what the embeddings keep of the rows is more than without it, and the export holds no decoder."""
    rows = ROWS.normal
    lengths_B = torch.from_numpy(rows.lengths)
    kept = {}
    for pretraining in (False, True):
        net = network(6, 1, pretraining=pretraining, embedding_dim=2, epochs=100, learning_rate=3e-3)
        with torch.no_grad():
            net.before_training(torch.from_numpy(rows.values), lengths_B)
        kept[pretraining] = reconstruction_error(net, rows)
    assert kept[True] < 0.5 * kept[False]
    assert not [name for name, _ in net.named_modules() if "decoder" in name]
