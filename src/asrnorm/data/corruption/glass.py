"""Glass blur: pixels change places with near ones, between two Gaussian blurs."""

import numpy as np
from numpy.typing import NDArray

from asrnorm.data.corruption.base import CORRUPTIONS, Pixels, to_pixels, to_unit
from asrnorm.data.corruption.blur import smooth
from asrnorm.data.corruption.stream import Streams


@CORRUPTIONS.register("glass_blur")
def glass_blur(images_nhwc: Pixels, streams: Streams, *, sigma: float, reach: int, rounds: int) -> Pixels:
    """Blur, copy every pixel from a random neighbour, blur again.

    The published script walks from the last pixel to the first and means to swap each with a neighbour at offsets from
    -reach to reach - 1; since it assigns views of one array, the neighbour keeps its value and the swap is a copy.
    """
    n, height, width, channels = images_nhwc.shape
    x = (smooth(to_unit(images_nhwc), sigma) * 255).astype(np.uint8).reshape(n, -1, channels)
    for _ in range(rounds):
        origin = _origins(streams, height, width, reach)
        x = np.take_along_axis(x, origin[..., None], axis=1)
    return to_pixels(smooth(to_unit(x.reshape(images_nhwc.shape)), sigma))


def _origins(streams: Streams, height: int, width: int, reach: int) -> NDArray[np.int64]:
    """Return for each pixel (flat index) the pixel whose old value one walk leaves there, `(n, h * w)`.

    A neighbour earlier in memory has not been walked over yet and still holds its old value. One later in memory
    already holds a copy, whose own origin counts: such chains are followed for all pixels at once, and are short.
    """
    rows = np.arange(reach + 1, height - reach + 1)
    columns = np.arange(reach + 1, width - reach + 1)
    position = np.tile(np.arange(height * width), (len(streams), 1))
    if len(rows) == 0 or len(columns) == 0:
        return position
    walked = (rows[:, None] * width + columns).ravel()
    offset = streams.integers(-reach, reach, 2, len(walked))
    neighbor = position.copy()
    neighbor[:, walked] = walked + offset[:, 0] * width + offset[:, 1]
    origin = neighbor.copy()
    is_walked = np.zeros(height * width, bool)
    is_walked[walked] = True
    image, pixel = np.nonzero((neighbor > position) & is_walked[neighbor])
    while len(image):
        here = origin[image, pixel]
        there = neighbor[image, here]
        origin[image, pixel] = there
        onward = (there > here) & is_walked[there]
        image, pixel = image[onward], pixel[onward]
    return origin
