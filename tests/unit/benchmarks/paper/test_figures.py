"""The figures, from made-up stores and cells: the drawn data, the labels, and no figure without data."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba

from benchmarks.paper.__main__ import main
from benchmarks.paper.data.datasets import Recordings, Split, Task
from benchmarks.paper.figures import FIGURES, models, stores, thyroid_masks
from benchmarks.paper.figures.simplex import CORNERS, on_simplex
from benchmarks.paper.figures.style import ANOMALY
from benchmarks.paper.neutral_ad_tabular.options import NeutralADTabularOptions
from benchmarks.paper.protocols import Block, normal_sets
from streamad.types import WindowSet
from streamad_models.neutral_ad import NeutralADOptions
from streamad_models.neutral_ad.model import contrastive_terms
from tests.unit.benchmarks.paper.results import result, stored

RNG = np.random.default_rng(0)


def draw(module: str, results: Path) -> Any:
    return importlib.import_module(f"benchmarks.paper.figures.{module}").draw(results)


def store(results: Path, name: str) -> dict[str, Any]:
    with np.load(results / f"{name}.npz") as arrays:
        return dict(arrays)


def series_store(n_classes: int, channels: int, length: int) -> dict[str, Any]:
    clouds = {
        f"{kind}_{space}": RNG.normal(size=(5, 20, size)).astype(np.float32)
        for kind in ("inliers", "anomalies")
        for space, size in (("x", 3), ("z", 8))
    }
    return clouds | {
        "example_views": RNG.normal(size=(n_classes, 5, channels, length)),
        "example_masks": RNG.uniform(size=(n_classes, 4, channels, length)),
        "example_lengths": np.full(n_classes, length - 2),
        "example_scores": np.linspace(0, 1, n_classes),
    }


def table_store() -> dict[str, Any]:
    return {
        "rows": RNG.uniform(size=(60, 6)),
        "masks": RNG.normal(size=(60, 4, 6)),
        "terms": RNG.exponential(size=(60, 4)),
        "is_anomaly": np.arange(60) < 15,
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Return a folder of results in which every store is there."""
    folder = tmp_path / "results"
    folder.mkdir()
    scores = {"before": RNG.normal(size=40), "after": np.arange(40.0), "is_anomaly": np.arange(40) >= 20}
    made_up = {
        "sad_scores": scores,
        "sad_views": series_store(2, 13, 20),
        "natops_views": series_store(2, 24, 20),
        "thyroid_terms": table_store(),
    }
    for name, arrays in made_up.items():
        np.savez(folder / f"{name}.npz", **arrays)
    return folder


def test_each_stored_figure_is_drawn(results: Path, tmp_path: Path) -> None:
    names = [name for name, module in FIGURES.items() if module not in ("n_vs_rest", "ablation")]
    assert len(names) == 7
    assert main(["figures", "--results", str(results), "--to", str(tmp_path / "drawn"), *names]) == 0
    for name in names:
        content = (tmp_path / "drawn" / f"{name}.png").read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) > 5_000


def test_the_histogram_has_the_auc_before_and_after(results: Path) -> None:
    before, after = draw("histogram", results).axes
    assert after.get_title() == "after training, AUC 1.000"
    assert before.get_xlabel().startswith("score")
    assert [text.get_text() for text in before.get_legend().get_texts()] == ["inliers (digit 0)", "other digits"]


def test_curves_need_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["figures", "--results", str(tmp_path), "--to", str(tmp_path), "paper_n_vs_rest", "paper_ablation"]
    assert main(arguments) == 1
    assert capsys.readouterr().out.count("nothing to show yet") == 2


def test_n_vs_rest_has_a_curve_for_each_method_with_bars_over_seeds(tmp_path: Path) -> None:
    cells = [
        result("natops", name, normal=classes, protocol=protocol, method=method, seed=seed, auc=auc + seed / 10)
        for method, auc in (("lof", 0.6), ("neutral_ad", 0.8))
        for protocol in ("one_vs_rest", "sweep", "n_vs_rest")
        for name, classes in normal_sets(Block("natops", protocol, 0)).items()
        for seed in (0, 1)
    ]
    stored(tmp_path, *cells)
    figure = draw("n_vs_rest", tmp_path)
    (natops,) = figure.axes  # no panel for SAD, which was not run
    assert (natops.get_title(), len(natops.containers)) == ("NATOPS", 2)
    ours = natops.containers[1]
    assert ours.lines[0].get_xdata().tolist() == [1, 2, 3, 4, 5]
    assert ours.lines[0].get_ydata() == pytest.approx([85.0] * 5)
    (low, high), *_ = ours.lines[2][0].get_segments()
    assert high[1] - low[1] == pytest.approx(2 * 50**0.5)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["LOF", "NeuTraL AD"]


def test_the_ablation_has_a_curve_for_each_form(tmp_path: Path) -> None:
    fields = {"protocol": "ablation", "method": "neutral_ad"}
    cells = [
        result("arrhythmia", "inliers", variant=f"{name}-k{k:02d}", f1=k / 100, **fields)
        for name in ("residual", "multiplicative")
        for k in (2, 3, 15)
    ]
    stored(tmp_path, *cells)
    figure = draw("ablation", tmp_path)
    (arrhythmia,) = figure.axes  # no panel for NATOPS, which was not run
    assert arrhythmia.get_ylabel() == "F1 (x100)"
    curves = [[round(x) for x in container.lines[0].get_xdata()] for container in arrhythmia.containers]
    assert curves == [[], [2, 3, 15], [2, 3, 15]]


def test_an_unknown_figure_is_one_line_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figures", "paper_masks"]) == 2
    assert "no figure 'paper_masks'" in capsys.readouterr().err


def test_a_store_is_measured_once_and_again_with_anew(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["figures", "--results", str(results), "--to", str(tmp_path), "paper_thyroid_simplex"]
    measured = []
    monkeypatch.setitem(stores.STORES, "thyroid_terms", lambda: measured.append(1) or table_store())
    assert main(arguments) == 0
    assert len(measured) == 0
    assert main([*arguments, "--anew"]) == 0
    assert main(arguments) == 0
    assert len(measured) == 1


def test_the_clouds_are_those_of_the_store_in_the_same_limits(results: Path) -> None:
    panels = draw("pca", results).axes
    titles = [f"{kind}, {space} space" for space in ("data", "embedding") for kind in ("inliers", "anomalies")]
    assert [panel.get_title() for panel in panels] == titles
    clouds = [store(results, "sad_views")[name] for name in ("inliers_x", "anomalies_x")]
    for panel, points_Vn3 in zip(panels[:2], clouds, strict=True):
        for cloud, points_n3 in zip(panel.collections, points_Vn3, strict=True):
            np.testing.assert_allclose(cloud.get_offsets(), points_n3[:, :2])
    depths = np.array(clouds)[..., 2]
    assert panels[0].get_zlim() == panels[1].get_zlim() == pytest.approx((depths.min(), depths.max()))
    assert len(panels[2].collections) == 5
    assert [panels[0].get_xlim(), panels[2].get_zlim()] == [panels[1].get_xlim(), panels[3].get_zlim()]


def test_the_masks_are_those_of_the_normal_example_up_to_its_end(results: Path) -> None:
    panels = [axis for axis in draw("masks", results).axes if axis.get_title().startswith("$")]
    arrays = store(results, "sad_views")
    shown = [arrays["example_views"][0, 0], *arrays["example_masks"][0]]
    assert len(panels) == len(shown) == 5
    for panel, values in zip(panels, shown, strict=True):
        np.testing.assert_allclose(panel.images[0].get_array(), values[:, :18])
    assert panels[4].images[0].get_clim() == (0, 1)


def test_transformations_have_a_row_for_each_class_and_a_column_for_each_view(results: Path) -> None:
    digits, movements = draw("sad_transformations", results).axes, draw("natops_transformations", results).axes
    views = store(results, "sad_views")["example_views"].reshape(10, 13, 20)
    for panel, values in zip(digits[:10], views, strict=True):
        np.testing.assert_allclose(panel.images[0].get_array()[:, :18], values[:, :18])
        assert panel.images[0].get_array()[:, 18:].mask.all()  # nothing of the padding
    views = store(results, "natops_views")["example_views"].reshape(10, 24, 20)
    for panel, values in zip(movements[:10], views, strict=True):
        np.testing.assert_allclose([line.get_ydata() for line in panel.lines], values)
    assert movements[5].get_ylabel().startswith("class 1, anomaly\nscore 1.000, above\n")


def test_a_score_is_labelled_with_its_rank_among_the_inliers() -> None:
    inliers_z = RNG.normal(size=(5, 20, 8)).astype(np.float32)
    terms = contrastive_terms(torch.from_numpy(inliers_z).transpose(0, 1), models.SAD_FOUR.temperature)
    scores = np.sort(terms.sum(dim=1).numpy())
    labels = models.rank_labels(scores[[0, 15]], inliers_z, models.SAD_FOUR)
    assert [each.split(", above\n")[1] for each in labels] == ["0 % of inliers", "75 % of inliers"]


def test_thyroid_has_a_column_for_each_example_with_its_highest_term_orange(results: Path) -> None:
    arrays = store(results, "thyroid_terms")
    chosen = thyroid_masks.examples(arrays)
    panels = np.array(draw("thyroid_masks", results).axes).reshape(6, len(chosen))
    for column, row in zip(panels.T, chosen, strict=True):
        drawn = [[bar.get_height() for bar in panel.patches] for panel in column]
        np.testing.assert_allclose(drawn[0], arrays["rows"][row])
        np.testing.assert_allclose(drawn[1:5], arrays["masks"][row])
        np.testing.assert_allclose(drawn[5], arrays["terms"][row])
        coloured = [bar.get_facecolor() for bar in column[5].patches]
        assert coloured.count(to_rgba(ANOMALY)) == 1
        assert coloured.index(to_rgba(ANOMALY)) == arrays["terms"][row].argmax()


def test_the_simplex_shows_as_many_inliers_as_anomalies_twice(results: Path) -> None:
    anomalies = store(results, "thyroid_terms")["terms"][:15]
    left, right, _ = draw("simplex", results).axes
    for panel in (left, right):
        inlier_points, anomaly_points = panel.collections
        assert len(inlier_points.get_offsets()) == 15
        np.testing.assert_allclose(anomaly_points.get_offsets(), on_simplex(anomalies[:, [0, 2, 3]]))
    np.testing.assert_allclose(right.collections[1].get_array(), anomalies.sum(axis=1))


def test_the_simplex_has_a_row_of_one_term_at_its_corner_and_one_of_none_in_the_middle() -> None:
    np.testing.assert_allclose(on_simplex(np.eye(3, dtype=np.float32)), CORNERS)
    np.testing.assert_allclose(on_simplex(np.zeros((1, 3), np.float32)), CORNERS.mean(axis=0)[None])


def test_thyroid_s_examples_are_a_median_normal_row_and_the_highest_anomaly_of_each_term_that_dominates_any() -> None:
    terms = np.array([[1, 0], [2, 0], [3, 0], [0, 9], [0, 7], [5, 0], [0, 8]], dtype=np.float32)
    arrays = {"terms": terms, "is_anomaly": np.arange(7) >= 3}
    assert thyroid_masks.examples(arrays) == [1, 3, 5]


def tiny_recordings() -> Recordings:
    splits = []
    for split in ("train", "test"):
        classes = np.arange(24) % 2
        speed = np.where(classes, 1.5, 0.4)[:, None]
        waves = np.sin(np.arange(16) * speed + RNG.uniform(0, 6, (24, 1)))
        x = (waves[:, None] + RNG.normal(0, 0.05, (24, 2, 16))).astype(np.float32)
        ids = tuple(f"{split}-{index}" for index in range(24))
        splits.append(Split(WindowSet(x, np.full(24, 16, np.int64), ids), classes))
    return Recordings(*splits)


def options(transformation: str) -> NeutralADOptions:
    small = {"n_transformations": 4, "embedding_dim": 8, "base_width": 4, "epochs": 3}
    return NeutralADOptions.model_validate(
        {**small, "transformation": transformation, "scaling": "none", "validation": 0.0}
    )


def test_scores_before_training_are_those_of_an_untrained_model() -> None:
    found = models.scores_before_and_after(tiny_recordings(), options("residual"))
    assert {name: values.shape for name, values in found.items()} == dict.fromkeys(found, (24,))
    assert found["before"].mean() == pytest.approx(1.0, abs=0.3)
    assert found["after"].mean() < found["before"].mean()
    assert found["is_anomaly"].sum() == 12


def test_views_masks_and_embeddings_fit_together() -> None:
    found = models.views_of_classes(tiny_recordings(), options("multiplicative"))
    assert (found["inliers_x"].shape, found["anomalies_z"].shape) == ((5, 12, 3), (5, 12, 8))
    np.testing.assert_allclose(np.linalg.norm(found["inliers_z"], axis=2), 1, atol=1e-5)
    views, masks = found["example_views"], found["example_masks"]
    assert (views.shape, masks.shape) == ((2, 5, 2, 16), (2, 4, 2, 16))
    np.testing.assert_allclose(views[:, 1:], masks * views[:, :1], atol=1e-5)


def test_masks_of_a_table_are_the_differences_of_its_views() -> None:
    rows = RNG.normal(size=(40, 5, 1)).astype(np.float32)
    windows = WindowSet(rows, np.ones(40, np.int64), tuple(map(str, range(40))))
    tabular = NeutralADTabularOptions.model_validate({"n_transformations": 4, "epochs": 2, "validation": 0.0})
    found = models.table_terms(Task(windows, windows, np.arange(40) >= 30), tabular)
    assert (found["rows"].shape, found["masks"].shape, found["terms"].shape) == ((40, 5), (40, 4, 5), (40, 4))
    assert np.isfinite(found["terms"]).all()
