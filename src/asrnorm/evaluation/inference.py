"""How images reach a model that is evaluated: device, size, range and precision, the same for every measurement."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from asrnorm.data.augment import resize, to_float
from asrnorm.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.precision import Precision, autocast, products, weight_dtype


@dataclass(frozen=True)
class Inference:
    """A model with the form of its input; made by `Inference.of`.

    Attributes:
        model: takes float images `(n, 3, h, w)` in [0, 1], returns logits.
        device: where it lies.
        dtype: of its parameters, and so of its input.
        precision: `bfloat16` computes under autocast, `tf32` in products of fewer digits; the others are what `dtype`
            says.
        size: height and width to which images are resized; `None` leaves them.

    Example:
        >>> inference = Inference.of(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)))
        >>> inference.logits(inference.to_input(np.zeros((4, 2, 2, 3), np.uint8))).shape
        torch.Size([4, 5])
    """

    model: nn.Module
    device: torch.device
    dtype: torch.dtype
    precision: Precision
    size: tuple[int, int] | None

    @classmethod
    def of(
        cls,
        model: nn.Module,
        *,
        device: torch.device | str | None = None,
        precision: Precision = "float32",
        size: tuple[int, int] | None = None,
    ) -> Self:
        """Look at the model and settle what is not given.

        Args:
            model: lies on `device` already.
            device: that of the model's parameters where `None`.
            precision: all but `bfloat16` must be the model's own; `tf32` is for a model in float32.
            size: see the class.

        Raises:
            UnknownNameError: no such precision.
            InputError: a precision that the model does not have.
        """
        if precision not in get_args(Precision):
            raise UnknownNameError(describe_unknown("precision", precision, get_args(Precision)))
        parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
        wanted = weight_dtype(precision)
        dtype = wanted if parameter is None else parameter.dtype
        if precision != "bfloat16" and dtype != wanted:
            name = str(dtype).removeprefix("torch.")
            raise InputError(f"cannot evaluate a {name} model in {precision}; convert it: model.to({wanted})")
        if device is None:
            device = "cpu" if parameter is None else parameter.device
        return cls(model, torch.device(device), dtype, precision, size)

    def to_input(self, images: NDArray[np.uint8]) -> Tensor:
        """Return uint8 images `(n, h, w, 3)` as the model takes them; they travel to the device as uint8."""
        if images.ndim != 4 or images.shape[3] != 3:
            hint = "; for a single image add the batch axis with images[None]" if images.ndim == 3 else ""
            raise InputError(f"expected images (n, h, w, 3), got shape {images.shape}{hint}")
        images_nhwc = torch.from_numpy(np.array(images, order="C"))  # a copy: torch takes no read-only memory
        if self.device.type == "cuda":
            images_nhwc = images_nhwc.pin_memory()
        images_nchw = images_nhwc.to(self.device, non_blocking=True).permute(0, 3, 1, 2)
        if self.size is not None and images_nchw.shape[2:] != self.size:
            images_nchw = resize(images_nchw, self.size)
        return to_float(images_nchw).to(self.dtype)

    def logits(self, images: Tensor) -> Tensor:
        """Return the model's logits in its precision; gradients are the caller's business.

        Raises:
            InputError: the model returns anything else.
        """
        with self.autocast():
            logits = self.model(images)
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            what = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
            raise InputError(
                f"{type(self.model).__name__} returns {what}, not logits (n, num_classes); wrap it in one that does"
            )
        return logits

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """Return the context in which the model is to be called."""
        with products(self.precision, self.device), autocast(self.precision, self.device):
            yield
