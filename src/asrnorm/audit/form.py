"""The form in which a foreign model takes images and gives answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from asrnorm.core.errors import InputError

_SMALLEST = 1e-12  # of a probability: its logarithm must be finite
_ROUNDING = 4e-3  # of a sum of probabilities in bfloat16
_STEP = 1 / 512  # how far a probability in 8 bits may be off
_MOST = 0.05  # that a sum of probabilities may be off, however many there are


@dataclass(frozen=True, kw_only=True)
class Form:
    """What a model expects of its input; images come as floats in [0, 1].

    Attributes:
        mean: taken from each channel; `None` leaves the values in [0, 1].
        std: divides each channel.
        size: height and width that the model takes; `None` takes any.
        batch: the number of images that it takes, no more and no fewer; `None` takes any.
    """

    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    size: tuple[int, int] | None = None
    batch: int | None = None

    def __post_init__(self) -> None:
        if (self.mean is None) != (self.std is None):
            raise InputError("--mean and --std belong together: give three numbers for each")
        if self.std is not None and min(self.std) <= 0:
            raise InputError(f"--std must be positive, not {' '.join(f'{value:g}' for value in self.std)}")
        if self.mean is not None and max(self.mean) > 1:
            raise InputError("--mean and --std are for values in [0, 1]: divide those for 0 to 255 by 255")

    def describe(self) -> str:
        """Return the form in a few words.

        Example:
            >>> Form(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25), batch=8).describe()
            'normalized by mean 0.5 0.5 0.5, deviation 0.25 0.25 0.25; 8 images at a time'
        """
        parts = ["values in [0, 1]"]
        if self.mean is not None and self.std is not None:
            mean, std = (" ".join(f"{value:g}" for value in values) for values in (self.mean, self.std))
            parts = [f"normalized by mean {mean}, deviation {std}"]
        parts += [f"{self.size[0]}x{self.size[1]} pixels"] if self.size else []
        return "; ".join([*parts, *([f"{self.batch} images at a time"] if self.batch else [])])

    def prepare(self, images: Tensor) -> Tensor:
        """Return images `(n, 3, h, w)` in [0, 1] at the size and in the range that the model takes."""
        if self.size is not None and tuple(images.shape[2:]) != self.size:
            images = F.interpolate(images, self.size, mode="bilinear", antialias=True)
        if self.mean is None or self.std is None:
            return images
        mean, std = (images.new_tensor(values).view(1, 3, 1, 1) for values in (self.mean, self.std))
        return (images - mean) / std

    def split(self, images: Tensor) -> list[Tensor]:
        """Return batches of exactly the fixed size, the last filled up with its own last image."""
        if self.batch is None:
            return [images]
        parts = list(images.split(self.batch))
        short = self.batch - len(parts[-1])
        if short:
            parts[-1] = torch.cat([parts[-1], parts[-1][-1:].expand(short, *images.shape[1:])])
        return parts


def find_answer(output: Any) -> Any:
    """Return the tensor of logits or probabilities in whatever a model returns.

    Networks return a tensor, a tuple whose first part it is, or an object or mapping with `logits`.

    Raises:
        InputError: nothing of the kind.

    Example:
        >>> find_answer({"logits": torch.ones(1, 2)}).shape, find_answer((torch.ones(3, 2), None)).shape
        (torch.Size([1, 2]), torch.Size([3, 2]))
    """
    if isinstance(output, Mapping) and "logits" in output:
        output = output["logits"]
    elif hasattr(output, "logits"):
        output = output.logits
    elif isinstance(output, tuple | list) and output:
        output = output[0]
    if not isinstance(output, Tensor):
        raise InputError(f"returns {type(output).__name__}, not a tensor of logits")
    return output


def are_probabilities(answer_nk: Tensor) -> bool:
    """Tell whether rows are probabilities, not logits: from 0 to 1, with a sum of 1, up to the rounding of few bits.

    Example:
        >>> are_probabilities(torch.tensor([[0.2, 0.8]])), are_probabilities(torch.tensor([[0.2, 3.0]]))
        (True, False)
    """
    x = answer_nk.detach().double()
    tolerance = min(max(_ROUNDING, _STEP * x.shape[1]), _MOST)
    within = bool(((x >= 0) & (x <= 1 + _ROUNDING)).all())
    return within and x.shape[1] > 1 and bool(((x.sum(1) - 1).abs() <= tolerance).all())


def to_logits(answer: Tensor, probabilities: bool) -> Tensor:
    """Return logits, whose softmax gives the probabilities back where those are what came."""
    answer = answer.float() if answer.dtype in (torch.float16, torch.bfloat16) else answer
    return answer.clamp(min=_SMALLEST).log() if probabilities else answer
