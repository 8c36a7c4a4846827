"""Fourier amplitude mix: the style of an image moves towards that of another image of the batch.

Xu, Zhang, Zhang, Wang and Tian, *A Fourier-based Framework for Domain Generalization*, CVPR 2021.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from asrnorm.data.augment.base import change_rows, to_float
from asrnorm.data.augment.named import AUGMENTATIONS, Augmentation, Size, check_range, draw_uniform, on_floats


@AUGMENTATIONS.register("fourier")
class FourierMix(Augmentation):
    r"""Fourier amplitude mix: amplitudes move towards those of another image of the batch, phases stay.

    $\lvert F \rvert \mapsto (1 - \lambda) \lvert F \rvert + \lambda \lvert F' \rvert$ with $\lambda$ uniform in
    0..`strength` and $F'$ the spectrum of the other image. Paper: mixes with images of other source domains too; here
    there is one source.

    Args:
        share: probability of each image to be changed.
        strength: the largest $\lambda$.
    """

    mixes, fold = True, "structure"

    def __init__(self, *, share: float = 0.3, strength: float = 1.0) -> None:
        self.share, self.strength = check_range("share", share, 0, 1), check_range("strength", strength, 0, 1)

    def draw(self, count: int, image_size: Size, generator: torch.Generator) -> dict[str, Tensor]:  # noqa: ARG002
        """Draw which images are changed, the other image of each, and how far its amplitudes move."""
        chosen, order = torch.rand((2, count), generator=generator, device=generator.device)
        move = draw_uniform(count, 0, self.strength, generator).float()
        return {"chosen": chosen < self.share, "other": order.argsort(), "move": move}

    def apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Mix the amplitudes of the chosen images with those of their others."""

        def change(some: Tensor, move: Tensor, other: Tensor) -> Tensor:
            return on_floats(some, lambda x_nchw: mix_amplitudes(x_nchw, to_float(other).float(), move))

        return change_rows(images, drawn["chosen"], change, drawn["move"], images[drawn["other"]])


def mix_amplitudes(x_nchw: Tensor, other_nchw: Tensor, move: Tensor) -> Tensor:
    """Return images with their own phases, and amplitudes moved by `move`, `(n,)`, towards the others'."""
    spectrum, amplitude = torch.fft.rfft2(x_nchw), torch.fft.rfft2(other_nchw).abs()
    mixed = torch.lerp(spectrum.abs(), amplitude, move.view(-1, 1, 1, 1))
    return torch.fft.irfft2(torch.polar(mixed, spectrum.angle()), s=x_nchw.shape[2:])
