"""What tells domains apart: their images, and t-SNE of the statistics that ASR-Norm learns on them."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from asrnorm.core.errors import AsrnormError, first_line, import_extra
from asrnorm.reporting.figures.base import FIGURES, NothingToDrawError, canvas, legend_beside, look, records_of
from asrnorm.studies import ANALYSIS_FILES
from asrnorm.studies.collect import Collected, RunRecord

_LIBRARIES = ("sklearn.manifold", "threadpoolctl")
_SAMPLES_DPI = 200
_MOST_SAMPLES = 1000  # more take minutes and show nothing else
_PANELS = {
    f"{name}_{layer}": rf"$\{name}_\mathrm{{stan}}$, {layer} layer"
    for layer in ("first", "last")
    for name in ("mu", "sigma")
}


@FIGURES.register("samples")
def samples(collected: Collected, out: Path) -> Any:
    """Images of every domain, from `samples.png` in the folder of the report, pixel for pixel."""
    path = out / "samples.png"
    if not path.is_file():
        raise NothingToDrawError(f"{path} is not there: asrnorm reproduce {collected.study.name} makes it")
    with _damage(path):
        image = import_module("matplotlib.image").imread(path)
    height, width = image.shape[:2]
    with canvas(width / _SAMPLES_DPI, height / _SAMPLES_DPI) as (figure, axes):
        figure.set_layout_engine("none")
        axes.set_position((0, 0, 1, 1))
        axes.imshow(image, interpolation="none")
        axes.set_axis_off()
        return figure


@FIGURES.register("tsne")
def tsne(collected: Collected, _out: Path) -> Any:
    """Learned mean and deviation of the first and last ASR layers, one dot per image, colored by domain."""
    record, path = _find(collected)
    source = record.spec.options.get("source")
    sources = (source,) if isinstance(source, str) else tuple(source or ())
    with _damage(path), np.load(path) as arrays:
        chosen = np.unique(np.linspace(0, len(arrays["domain"]) - 1, _MOST_SAMPLES).round().astype(int))
        domain = arrays["domain"][chosen]
        points = {name: embed(arrays[name][chosen]) for name in _PANELS}
    names = list(dict.fromkeys(domain.tolist()))
    with canvas(8.6, 6.2, nrows=2, ncols=2) as (figure, grid):
        for axes, (panel, title) in zip(grid.flat, _PANELS.items(), strict=True):
            handles = []
            for index, name in enumerate(names):
                color, marker = look(index)
                dots = points[panel][domain == name]
                label = name.replace("_", " ") + (" (source)" if name in sources else "")
                handles.append(
                    axes.scatter(*dots.T, s=11, c=color, marker=marker, linewidths=0, alpha=0.75, label=label)
                )
            axes.set_title(title)
            axes.set_xticks([])
            axes.set_yticks([])
        legend_beside(figure, handles, marker_scale=2)
        figure.legends[0].set_title(f"seed {record.seed}", prop={"size": 9})
        figure.legends[0].set_alignment("left")
        return figure


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Leave a figure out if its file is damaged, for which libraries raise anything."""
    try:
        yield
    except AsrnormError:
        raise
    except Exception as error:
        raise NothingToDrawError(f"{path} is damaged ({first_line(error)}); remove it") from error


def _find(collected: Collected) -> tuple[RunRecord, Path]:
    file = ANALYSIS_FILES["statistics"]
    for row in collected.study.rows:
        for record in records_of(collected, row):
            if record.folder and (path := record.folder / file).is_file():
                return record, path
    raise NothingToDrawError(f"no run has {file}; asrnorm reproduce {collected.study.name} makes it")


def embed(values: np.ndarray) -> np.ndarray:
    """Return two t-SNE coordinates per sample, the same on every call."""
    manifold, threads = (import_extra(name, "t-SNE", "scikit-learn", "data") for name in _LIBRARIES)
    scaled = values.astype(np.float64) - values.mean(0)
    perplexity = min(30.0, (len(values) - 1) / 3)
    model = manifold.TSNE(perplexity=perplexity, init="pca", learning_rate="auto", random_state=0)
    # One thread: on a busy machine two wait for each other and take fifteen times as long.
    with threads.threadpool_limits(1):
        embedded: np.ndarray = model.fit_transform(scaled / max(scaled.std(), 1e-12))
    return embedded
