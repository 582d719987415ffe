"""The form of NeuTraL AD for other runtimes gives the model's terms, whatever its options."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from streamad_models.convolution_form import ConvolutionForm, with_convolutions
from streamad_models.ensemble import Ensemble, EnsembleOptions
from streamad_models.simple import Pointwise
from tests.support.detectors import SEQUENCES
from tests.unit.models.small import PARAMETRISATIONS, model, windows


@pytest.mark.parametrize("transformation", PARAMETRISATIONS)
@pytest.mark.parametrize(("n_channels", "length", "n_blocks"), [(3, 16, "auto"), (1, 2, 1), (2, 3, 1), (4, 51, 2)])
def test_it_gives_the_terms_and_embeddings_of_the_model(
    transformation: str, n_channels: int, length: int, n_blocks: int | str
) -> None:
    given, drawn = model(n_channels, length, transformation=transformation, n_blocks=n_blocks), torch.Generator()
    drawn.manual_seed(0)
    given.mean_C.uniform_(-1, 1, generator=drawn)
    given.scale_C.uniform_(0.5, 2, generator=drawn)
    given.double()  # rounding of float32 moves a term by 1e-5 now and then
    x_BCL, lengths_B = windows(7, n_channels, length)
    x_BCL = x_BCL.double()
    lengths_B[::2] = max(length // 2, 1)
    form = with_convolutions(given)
    assert isinstance(form, ConvolutionForm)
    with torch.inference_mode():
        torch.testing.assert_close(form(x_BCL, lengths_B), given(x_BCL, lengths_B), atol=1e-10, rtol=0)
        expected = given.embeddings(x_BCL, lengths_B)
        torch.testing.assert_close(form.embeddings(x_BCL, lengths_B), expected, atol=1e-10, rtol=0)
    assert (form.n_channels, form.window_length, form.n_terms) == (n_channels, length, given.n_terms)


def test_networks_inside_a_model_are_replaced_in_a_copy_and_other_models_stay() -> None:
    options = EnsembleOptions(n_minirocket=84, n_groups=2, effort="normal", time_limit_s=1e-6)
    fitted = Ensemble(options).fit(SEQUENCES.normal, seed=0, device="cpu")
    changed = with_convolutions(fitted.model)
    assert any(isinstance(part, ConvolutionForm) for part in changed.modules())
    assert not any(isinstance(part, ConvolutionForm) for part in fitted.model.modules())
    data = SEQUENCES.anomalous
    with torch.inference_mode():
        found = changed(torch.from_numpy(data.values), torch.from_numpy(data.lengths)).numpy()
    np.testing.assert_allclose(found, fitted.score(data.values, data.lengths), atol=1e-4)
    plain = Pointwise().fit(SEQUENCES.normal, seed=0, device="cpu").model
    assert with_convolutions(plain) is plain
