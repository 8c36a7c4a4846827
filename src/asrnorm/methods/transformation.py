"""RSDA's tuples on images in [0, 1]: they are defined on bytes, so bytes is what they are applied to."""

import torch
from torch import Tensor

from asrnorm.data.augment import IDENTITY, apply_tuple


def transform(images: Tensor, ops: Tensor, levels: Tensor) -> Tensor:
    """Apply one tuple to all images; one of identities alone, read on the CPU, returns them as they are.

    Args:
        images: float `(n, 3, h, w)` in [0, 1]; bytes over 255, as source images are, come back as those bytes exactly.
        ops: operation indices `(k,)`; on the CPU they are read, elsewhere nothing is waited for.
        levels: indices into their grids, likewise.

    Returns:
        Images of the same shape, dtype and device; each value a byte over 255.

    Example:
        >>> images = torch.full((1, 3, 1, 1), 100 / 255)
        >>> (transform(images, torch.tensor([7]), torch.tensor([0])) * 255).flatten()  # red - 120
        tensor([  0., 100., 100.])
    """
    if ops.device.type == "cpu" and bool((ops == IDENTITY).all()):
        return images
    return to_unit(apply_tuple(to_bytes(images), ops, levels), images.dtype)


def to_bytes(images: Tensor) -> Tensor:
    """Return images in [0, 1] as uint8, rounded, what lies outside clipped.

    Example:
        >>> to_bytes(torch.tensor([-0.1, 0.5, 1.0])).tolist()
        [0, 128, 255]
    """
    wide = torch.promote_types(images.dtype, torch.float32)  # in bfloat16 the product could round to another byte
    return (images.detach().to(wide) * 255).round_().clamp_(0, 255).to(torch.uint8)


def to_unit(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Return uint8 images over 255.

    Example:
        >>> to_unit(torch.tensor([0, 255], dtype=torch.uint8), torch.float64).tolist()
        [0.0, 1.0]
    """
    return (images.to(torch.promote_types(dtype, torch.float32)) / 255).to(dtype)
