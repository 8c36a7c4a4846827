"""Images to try operations on, and the way between batches of tensors and Pillow images."""

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image


def pictures(height: int = 32, width: int = 32, seed: int = 0) -> torch.Tensor:
    """Return a batch `(8, 3, h, w)`: noise, one color, black, white, two values, few values, a ramp, a dark corner."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (height, width, 3))
    ramp = np.linspace(0, 255, height)[:, None, None] * np.linspace(0.2, 1, width)[None, :, None] * [1.0, 0.7, 0.4]
    corner = np.zeros((height, width, 3))
    corner[: height // 2, : width // 2] = rng.integers(200, 256, 3)
    batch = [
        noise,
        np.full((height, width, 3), rng.integers(0, 256, 3)),
        np.zeros((height, width, 3)),
        np.full((height, width, 3), 255),
        (noise > 127) * 255,
        noise // 16 + 100,
        ramp,
        corner,
    ]
    return to_batch([image.astype(np.uint8) for image in batch])


def to_batch(images: list[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()


def one_by_one(batch: torch.Tensor, function: Callable[..., Image.Image], *parameters: list) -> torch.Tensor:
    """Apply a function of a Pillow image, and of each sample's parameters, to every image of a batch."""
    images = batch.permute(0, 2, 3, 1).contiguous().numpy()
    results = [
        np.asarray(function(Image.fromarray(image), *values))
        for image, *values in zip(images, *parameters, strict=True)
    ]
    return to_batch(results)


def difference(a: torch.Tensor, b: torch.Tensor) -> int:
    """Return the largest difference in gray levels."""
    assert a.shape == b.shape
    assert a.dtype == b.dtype == torch.uint8
    return int((a.int() - b.int()).abs().max()) if a.numel() else 0
