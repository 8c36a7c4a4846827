"""What the domains look like: the contact sheet that was made where the images are."""

from importlib import import_module
from pathlib import Path
from typing import Any

from asrnorm.reporting.figure import canvas
from asrnorm.reporting.figures.base import FIGURES, NothingToDrawError
from asrnorm.studies.collect import Collected

_DPI = 200


@FIGURES.register("samples")
def samples(collected: Collected, out: Path) -> Any:
    """Images of every domain, from `samples.png` in the folder of the report, pixel for pixel."""
    path = out / "samples.png"
    if not path.is_file():
        raise NothingToDrawError(f"{path} is not there: asrnorm reproduce {collected.study.name} makes it")
    image = import_module("matplotlib.image").imread(path)
    height, width = image.shape[:2]
    with canvas(width / _DPI, height / _DPI) as (figure, axes):
        figure.set_layout_engine("none")
        axes.set_position((0, 0, 1, 1))
        axes.imshow(image, interpolation="none")
        axes.set_axis_off()
        return figure
