"""The forms for other runtimes give the model's terms: of NeuTraL AD whatever its options, of MiniRocket."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from streamad_models.convolution_form import ConvolutionForm, exported_form
from streamad_models.ensemble import Ensemble, EnsembleOptions
from streamad_models.ensemble.minirocket import Dilation, SummedDilation, fit_minirocket
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
    form = exported_form(given, "onnxruntime")
    assert isinstance(form, ConvolutionForm)
    with torch.inference_mode():
        torch.testing.assert_close(form(x_BCL, lengths_B), given(x_BCL, lengths_B), atol=1e-10, rtol=0)
        expected = given.embeddings(x_BCL, lengths_B)
        torch.testing.assert_close(form.embeddings(x_BCL, lengths_B), expected, atol=1e-10, rtol=0)
    assert (form.n_channels, form.window_length, form.n_terms) == (n_channels, length, given.n_terms)


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_parts_of_a_model_are_replaced_in_a_copy_and_other_models_stay(backend: str) -> None:
    options = EnsembleOptions(n_minirocket=84, n_groups=2, effort="normal", time_limit_s=1e-6)
    fitted = Ensemble(options).fit(SEQUENCES.normal, seed=0, device="cpu")
    changed = exported_form(fitted.model, backend)
    kinds = {type(part) for part in changed.modules()}
    assert ConvolutionForm in kinds
    assert (SummedDilation in kinds, Dilation in kinds) == ((True, False) if backend == "openvino" else (False, True))
    assert not {ConvolutionForm, SummedDilation} & {type(part) for part in fitted.model.modules()}
    data = SEQUENCES.anomalous
    with torch.inference_mode():
        found = changed(torch.from_numpy(data.values), torch.from_numpy(data.lengths)).numpy()
    np.testing.assert_allclose(found, fitted.score(data.values, data.lengths), atol=1e-4)
    plain = Pointwise().fit(SEQUENCES.normal, seed=0, device="cpu").model
    assert exported_form(plain, backend) is plain


@pytest.mark.parametrize(("n_channels", "length"), [(1, 2), (3, 9), (6, 30), (24, 51)])
def test_summed_channels_give_minirocket_s_features(n_channels: int, length: int) -> None:
    drawn = torch.Generator().manual_seed(0)
    x_BCL = torch.randn(9, n_channels, length, generator=drawn).cumsum(dim=2)
    x_BCL[::2, :, length // 2 :] = 0.0
    for dilation in fit_minirocket(x_BCL, 840, np.random.default_rng(0)).double().dilations:
        with torch.inference_mode():
            expected = dilation(x_BCL.double())
            torch.testing.assert_close(SummedDilation(dilation)(x_BCL.double()), expected, atol=1e-9, rtol=0)
