"""Noise that is independent in every value: Gaussian, shot, impulse and speckle."""

from asrnorm.data.corruptions.base import CORRUPTIONS, Pixels, Streams, to_pixels, to_unit


@CORRUPTIONS.register("gaussian_noise")
def gaussian_noise(images_nhwc: Pixels, streams: Streams, *, sd: float) -> Pixels:
    """Add N(0, sd) to every value."""
    return to_pixels(to_unit(images_nhwc) + sd * streams.normal(*images_nhwc.shape[1:]))


@CORRUPTIONS.register("shot_noise")
def shot_noise(images_nhwc: Pixels, streams: Streams, *, photons: float) -> Pixels:
    """Count Poisson photons, `photons` of them where an image is white: fewer photons, more noise."""
    return to_pixels(streams.poisson(to_unit(images_nhwc) * photons) / photons)


@CORRUPTIONS.register("impulse_noise")
def impulse_noise(images_nhwc: Pixels, streams: Streams, *, amount: float) -> Pixels:
    """Replace a fraction `amount` of all values by 0 or 255, half each."""
    chance = streams.uniform(*images_nhwc.shape[1:])
    corrupted = images_nhwc.copy()
    corrupted[chance < amount] = 0
    corrupted[chance < amount / 2] = 255
    return corrupted


@CORRUPTIONS.register("speckle_noise")
def speckle_noise(images_nhwc: Pixels, streams: Streams, *, sd: float) -> Pixels:
    """Add N(0, sd) times the value to every value."""
    x = to_unit(images_nhwc)
    return to_pixels(x + x * (sd * streams.normal(*images_nhwc.shape[1:])))
