"""The four learned masks of one spoken digit's spectrogram."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

from benchmarks.paper.figures.stores import stored
from benchmarks.paper.figures.style import new_figure

_IMAGE: Final[dict[str, Any]] = {"aspect": "auto", "origin": "lower", "interpolation": "nearest"}


def draw(results: Path) -> Figure:
    """Return the sequence of the normal class and M_1 to M_4 of it, 0 (black) to 1 (white), up to its end."""
    arrays = stored("sad_views", results)
    length = int(arrays["example_lengths"][0])
    x_CL, masks_KCL = arrays["example_views"][0, 0, :, :length], arrays["example_masks"][0, :, :, :length]
    figure = new_figure(13, 2.7)
    axes = figure.subplots(1, 1 + len(masks_KCL), sharey=True)
    shown = axes[0].imshow(x_CL, cmap="viridis", **_IMAGE)
    figure.colorbar(shown, ax=axes[0], shrink=0.9).ax.set_title("value", fontsize=8)  # beside it begins M_1
    axes[0].set(title="$x$ (digit 0, held out)", ylabel="MFCC number")
    for k, (axis, mask_CL) in enumerate(zip(axes[1:], masks_KCL, strict=True), start=1):
        shown = axis.imshow(mask_CL, vmin=0, vmax=1, cmap="gray", **_IMAGE)
        axis.set_title(f"$M_{k}(x)$")
    figure.colorbar(shown, ax=list(axes[1:]), label="mask's value", shrink=0.9)
    for axis in axes:
        axis.set_xlabel("frame")
    return figure
