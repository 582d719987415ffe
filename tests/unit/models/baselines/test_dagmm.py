from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from streamad.testing import check_detector
from streamad_models.baselines.networks.dagmm import Dagmm, DagmmOptions
from streamad_models.baselines.networks.network import embed_shape
from streamad_models.neutral_ad.encoder import Encoder
from tests.support.detectors import ROWS, SEQUENCES, Case


@pytest.mark.parametrize("case", [SEQUENCES, ROWS], ids=["sequences", "rows"])
def test_it_keeps_the_laws_of_a_detector(case: Case, tmp_path: Path) -> None:
    options = DagmmOptions(epochs=30, batch_size=16)
    check_detector(lambda: Dagmm(options), normal=case.normal, anomalous=case.anomalous, folder=tmp_path)


def test_a_table_takes_the_published_encoder_and_keeps_the_laws(tmp_path: Path) -> None:
    options = DagmmOptions(table=True, table_widths=(10,), n_components=2, epochs=100, batch_size=16)
    network = Dagmm(options).build(6, 1, torch.Generator().manual_seed(0))
    widths = [layer.out_features for layer in network.encoder if isinstance(layer, nn.Linear)]  # type: ignore[operator, union-attr]
    assert widths == [10, options.latent_dim]
    check_detector(lambda: Dagmm(options), normal=ROWS.normal, anomalous=ROWS.anomalous, folder=tmp_path)


def test_sequences_do_not_take_the_form_of_tables() -> None:
    network = Dagmm(DagmmOptions(table=True, n_components=4)).build(3, 24, torch.Generator().manual_seed(0))
    assert isinstance(network.encoder, Encoder)


def test_the_number_of_components_is_chosen_and_told() -> None:
    options = DagmmOptions(epochs=5, batch_size=16)
    chosen = Dagmm(options).fit(ROWS.normal, seed=0, device="cpu").summary.settings["n_components"]
    assert chosen in (4, 8, 12)


def test_padding_has_no_part_in_the_error_of_reconstruction() -> None:
    network = Dagmm(DagmmOptions(n_components=4, scaling="none")).build(3, 24, torch.Generator().manual_seed(0))
    windows_BCL, lengths_B = torch.randn(5, 3, 24), torch.tensor([24, 20, 12, 5, 1])
    windows_BCL = windows_BCL.masked_fill(torch.arange(24) >= lengths_B[:, None, None], 0.0)
    error_B, points_BZ = network.compress(windows_BCL, lengths_B)
    back_BCL = network.decoder(network.encoder(embed_shape(windows_BCL)))
    inside_BCL = (torch.arange(24) < lengths_B[:, None, None]).expand_as(windows_BCL)
    for i in range(5):
        x, back = windows_BCL[i][inside_BCL[i]], back_BCL[i][inside_BCL[i]]
        torch.testing.assert_close(error_B[i], (x - back).square().sum())
        torch.testing.assert_close(points_BZ[i, -2], (x - back).norm() / x.norm())
        torch.testing.assert_close(points_BZ[i, -1], torch.nn.functional.cosine_similarity(x, back, dim=0))
