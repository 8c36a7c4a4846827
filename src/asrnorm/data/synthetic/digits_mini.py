"""Generated digit domains: the suite `digits_mini`, MNIST-M from MNIST and photographs, and a stand-in for SYN."""

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError
from asrnorm.data.synthetic.render import RenderStyle, recolor_strokes, render_digits
from asrnorm.data.synthetic.sources import (
    SIZE,
    build_uci,
    enlarge,
    load_mnist_subset,
    load_photographs,
    sample_patches,
    split_digits,
    to_rgb,
)

Domain = tuple[NDArray[np.uint8], NDArray[np.int64]]

# Each domain has its own random stream, so that a change in one leaves the others as they were.
_STREAMS = ("split", "blended", "rendered", "inverted")
_REPEATS = 4  # times that each of the 500 test digits appears in a domain
_RENDERED = 2000

# A network trained on MNIST alone loses about half of its accuracy, and stays well above chance.
_RENDERED_STYLE = RenderStyle(contrast=130.0, light_share=0.75, gradient=30.0, blur=0.8, noise=3.0)
_BORDER = (SIZE - 28) // 2

# Ganin and Lempitsky vary the number of digits (one to three), position, orientation, colors of background and stroke,
# and blur, without giving ranges: with these a plain network loses about as much as is published for SYN.
SYN_STYLE = RenderStyle(neighbor_chance=0.5, rotation=15.0)


def build_digits_mini(seed: int = 0) -> dict[str, Domain]:
    """Build every part of the suite, images `(n, 32, 32, 3)` and labels: three splits of the source, then four targets.

    `mnist_train`, `mnist_val`, `mnist_test` hold 4,000, 500 and 500 digits. Targets: `uci`, real digits of other
    writers; `blended`, test digits on photographs by the rule of MNIST-M; `rendered`, printed digits with distracting
    neighbors; `inverted`, test digits in colored ink on a colored ground, half of them dark on light. No training or
    validation digit is in a target. The seed fixes the split and the targets.
    """
    streams = dict(zip(_STREAMS, np.random.default_rng(seed).spawn(len(_STREAMS)), strict=True))
    splits = split_digits(load_mnist_subset(), streams["split"])
    parts = {f"mnist_{name}": (to_rgb(enlarge(part.images_28)), part.labels) for name, part in splits.items()}
    parts["uci"] = build_uci()
    digits_28, labels = splits["test"]
    rows = _repeat(labels, streams["blended"])
    patches = sample_patches(load_photographs(), len(rows), streams["blended"])
    parts["blended"] = blend(digits_28[rows], patches), labels[rows]
    parts["rendered"] = _render(_RENDERED, _RENDERED_STYLE, streams["rendered"])
    rows = _repeat(labels, streams["inverted"])
    painted = recolor_strokes(enlarge(digits_28)[rows], streams["inverted"], contrast=120.0, light_share=0.5)
    parts["inverted"] = painted, labels[rows]
    return parts


def _render(count: int, style: RenderStyle, generator: np.random.Generator) -> Domain:
    labels = generator.permutation(np.arange(count) % 10)
    return render_digits(labels, style, generator), labels


def _repeat(labels: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    return generator.permutation(np.tile(np.arange(len(labels)), _REPEATS))


def build_mnist_m(mnist_images_28: NDArray[np.uint8], labels: NDArray[np.integer], seed: int = 0) -> Domain:
    """Blend MNIST digits `(n, 28, 28)`, white on black, with patches of photographs, as MNIST-M does.

    Ganin and Lempitsky (2015) take the absolute difference of digit and patch, channel by channel. In the published
    images the digit keeps its 28x28 pixels inside a border of two, and every nonzero pixel counts as 255, so that
    strokes are the inverted patch with hard edges. Their photographs are those of BSDS500, which differ from these.
    Returns images `(n, 32, 32, 3)`, the seed fixing their patches, and the labels as int64.
    """
    generator = np.random.default_rng(seed)
    if mnist_images_28.shape[1:] != (28, 28) or mnist_images_28.dtype != np.uint8:
        found = f"{mnist_images_28.dtype} {mnist_images_28.shape}"
        raise InputError(f"MNIST images must be uint8 of shape (n, 28, 28), not {found}")
    if np.shape(labels) != mnist_images_28.shape[:1]:
        raise InputError(f"{len(mnist_images_28)} images need as many labels, not shape {np.shape(labels)}")
    patches = sample_patches(load_photographs(), len(labels), generator, size=SIZE)
    return blend(mnist_images_28, patches), np.asarray(labels, np.int64)


def blend(digits_28: NDArray[np.uint8], patches: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return `|patch - 255 * (digit > 0)|`, the digit in the center of the patch."""
    stroke = np.pad(digits_28 > 0, ((0, 0), (_BORDER, _BORDER), (_BORDER, _BORDER)))
    return np.where(stroke[..., None], 255 - patches, patches)


def build_syn_like(count: int, seed: int = 0) -> Domain:
    """Render digits like those of SYN, the synthetic digits of Ganin and Lempitsky; results must not be called SYN.

    Returns images `(count, 32, 32, 3)` and labels, in random order; class sizes differ by at most one.
    """
    return _render(count, SYN_STYLE, np.random.default_rng(seed))
