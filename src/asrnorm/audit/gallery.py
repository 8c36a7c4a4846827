"""What broke: images that a model knows when they are clean, and what it takes them for when they are not."""

import base64
import html
from collections.abc import Callable, Mapping
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from asrnorm.audit.images import LabeledImages
from asrnorm.audit.result import Scores

_SIDE = 112  # of a thumbnail
_SMALL = 96  # images up to this side keep their pixels
_MOST = 4  # images a row

Change = Callable[[NDArray[np.uint8], int], NDArray[np.uint8]]
"""Takes one image `(1, h, w, 3)` and its row; returns it as the model saw it when it broke."""


def choose_severity(levels: Mapping[int, Scores]) -> int | None:
    """Return the mildest severity that breaks enough images to fill a row; else the one that breaks most, if any does.

    Example:
        >>> choose_severity({})
    """
    enough = [level for level in sorted(levels) if levels[level].num_broken >= _MOST]
    if enough:
        return enough[0]
    worst = max(levels, key=lambda level: levels[level].num_broken, default=None)
    return worst if worst is not None and levels[worst].num_broken else None


def gallery(scores: Scores, images: LabeledImages, names: Mapping[int, str], change: Change, most: int = _MOST) -> str:
    """Return pairs of images, before and after, with the wrong answer and how sure it was.

    Args:
        scores: whose broken images to show, the surest mistakes first.
        images: the images.
        names: of the outputs.
        change: makes an image what the model saw.
        most: pairs.
    """
    tiles = []
    for row, guess, confidence in scores.broken[:most]:
        image = images.images[int(row)][None]
        truth = images.classes[int(images.labels[int(row)])]
        answer = names.get(int(guess), f"output {int(guess)}")
        tiles.append(_tile(image[0], change(image, int(row))[0], truth, answer, confidence))
    return f'<div class="gallery">{"".join(tiles)}</div>'


def _tile(clean: NDArray[np.uint8], broken: NDArray[np.uint8], truth: str, answer: str, confidence: float) -> str:
    images = _image(clean, truth) + _image(broken, f"{truth}, taken for {answer}")
    said = f"{html.escape(truth)} &rarr; <b>{html.escape(answer)}</b> {100 * confidence:.0f} %"
    return f'<figure class="tile"><div>{images}</div><figcaption>{said}</figcaption></figure>'


def _image(pixels: NDArray[np.uint8], description: str) -> str:
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    buffer = BytesIO()
    if max(picture.size) <= _SMALL:
        kind, style = "png", ' class="pixels"'
        picture.save(buffer, "PNG")
    else:
        kind, style = "jpeg", ""
        picture.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
        picture.save(buffer, "JPEG", quality=82)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img{style} src="data:image/{kind};base64,{data}" alt="{html.escape(description)}">'
