"""Pixelation and JPEG compression, by Pillow."""

from io import BytesIO

import numpy as np
from PIL import Image

from asrnorm.data.corruption.base import CORRUPTIONS, Pixels
from asrnorm.data.corruption.stream import Streams


@CORRUPTIONS.register("pixelate")
def pixelate(images_nhwc: Pixels, _streams: Streams, *, scale: float) -> Pixels:
    """Shrink with a box filter and enlarge back."""
    height, width = images_nhwc.shape[1:3]
    small = max(1, int(width * scale)), max(1, int(height * scale))
    box = Image.Resampling.BOX
    return np.stack(
        [np.asarray(Image.fromarray(image).resize(small, box).resize((width, height), box)) for image in images_nhwc]
    )


@CORRUPTIONS.register("jpeg_compression")
def jpeg_compression(images_nhwc: Pixels, _streams: Streams, *, quality: int) -> Pixels:
    """Write as JPEG and read back."""
    corrupted = np.empty_like(images_nhwc)
    for position, image in enumerate(images_nhwc):
        file = BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=int(quality))
        corrupted[position] = np.asarray(Image.open(file))
    return corrupted
