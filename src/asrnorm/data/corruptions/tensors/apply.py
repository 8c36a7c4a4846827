"""Corrupt tensors on their device: behind `corrupt`, with each image's own severity, and as a module."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from asrnorm.core.config import as_whole_number
from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.core.randomness import GOLDEN, random_bits
from asrnorm.data.augment.base import to_bytes, to_float
from asrnorm.data.corruptions.base import check_call, corrupt, stream_word
from asrnorm.data.corruptions.severity import SEVERITIES, check_side, choose_preset, severity_options
from asrnorm.data.corruptions.tensors.base import TENSOR_CORRUPTIONS, TIE, Draws, Settings

# Values that are processed at a time: on a CPU what the cache holds, elsewhere about a gigabyte of intermediates.
_CPU_CHUNK, _CHUNK = 2**18, 2**26


@torch.no_grad()
def corrupt_tensors(images: Tensor, name: str, options: Mapping[str, Any], **arguments: Any) -> Any:
    """Do what `corrupt` does, for a tensor; `arguments` are its other ones."""
    _check_images(images, name)
    n, _, height, width = images.shape
    severity, seed = arguments["severity"], as_whole_number(arguments["seed"], "seed")
    settings = severity_options(name, severity, arguments["preset"] or choose_preset(height, width)) | dict(options)
    indices = arguments["indices"]
    if indices is not None and len(indices) != n:
        raise InputError(f"{n} images but {len(indices)} indices; give one index for each image")
    if name in TENSOR_CORRUPTIONS:
        keys_n = _image_keys(stream_word(seed, name, severity), indices, n, images.device)
        return _apply(images, name, keys_n, [settings])
    pixels = to_bytes(images) if images.is_floating_point() else images
    array = corrupt(pixels.permute(0, 2, 3, 1).cpu().numpy(), name, **arguments, **options)
    corrupted = torch.from_numpy(array).permute(0, 3, 1, 2)
    return torch.empty_like(images).copy_(to_float(corrupted) if images.is_floating_point() else corrupted)


@torch.no_grad()
def corrupt_batch(
    images: Tensor, name: str, severity: int | Tensor, keys: Tensor, *, preset: str | None = None
) -> Tensor:
    """Return a batch with one corruption at each image's own severity, for augmentation.

    Nothing waits for the device or depends on its values, so that a CUDA graph can capture the call; the first call
    copies constants to the device, and the first at a size the photographs of `frost`.

    Args:
        images: `(n, 3, h, w)`, uint8 or float in [0, 1].
        name: one of `TENSOR_CORRUPTIONS`.
        severity: 1 to 5, or a tensor `(n,)` of integers on the images' device; 0 leaves an image as it is.
        keys: int64 `(n,)` on the images' device, an image's key to its random numbers, such as
            `torch.randint(2**62, (n,), generator=generator)`.
        preset: `cifar` or `imagenet`; by default the size decides.

    Raises:
        UnknownNameError: there is no such corruption of tensors.
        InputError: a tensor has another shape or device.

    Example:
        >>> severity, keys = torch.tensor([0, 5]), torch.tensor([7, 8])
        >>> corrupt_batch(torch.full((2, 3, 4, 4), 0.5), "brightness", severity, keys)[:, 0, 0, 0]
        tensor([0.5000, 0.8000])
    """
    TENSOR_CORRUPTIONS[name]
    _check_images(images, name)
    n, _, height, width = images.shape
    preset = preset or choose_preset(height, width)
    if not isinstance(severity, Tensor):
        severity = torch.full((1,), as_whole_number(severity, "severity"), device=images.device).expand(n)
    for values, what in ((severity, "severity"), (keys, "keys")):
        if values.shape != (n,) or values.device != images.device or values.is_floating_point():
            found = f"{values.dtype} {tuple(values.shape)} on {values.device}"
            raise InputError(f"{what} must be integers of shape ({n},) on {images.device}, not {found}")
    rows = [severity_options(name, level, preset) for level in SEVERITIES]
    corrupted = _apply(images, name, keys, rows, severity.clamp(1, len(rows)) - 1)
    return torch.where((severity > 0).view(-1, 1, 1, 1), corrupted, images)


class Corrupt(nn.Module):
    """Corrupts images with one of the 19 corruptions, as a layer before a network or in a chain of transformations.

    Images of successive calls count on: the first of the second call follows the last of the first call, so that the
    batches of a data set get what `asrnorm.corrupt` gives the whole. `reset()` starts again.

    Args:
        name: one of `list_corruptions()`.
        severity: 1 (mild) to 5.
        seed: of the random corruptions.
        preset: `cifar` or `imagenet`; by default the size decides.
        **options: as in `asrnorm.corrupt`.

    Raises:
        UnknownNameError: there is no such corruption, preset or option.
        InputError: the severity is not 1 to 5, or an option is out of range.

    Example:
        >>> network = nn.Sequential(Corrupt("brightness", severity=2), nn.Flatten())
        >>> network(torch.full((1, 3, 1, 1), 0.5))
        tensor([[0.6000, 0.6000, 0.6000]])
    """

    def __init__(
        self, name: str, severity: int = 3, *, seed: int = 0, preset: str | None = None, **options: Any
    ) -> None:
        super().__init__()
        check_call(name, options)
        severity_options(name, severity, preset or choose_preset(1, 1))
        self.name, self.severity, self.preset, self.options = name, severity, preset, options
        self.seed = as_whole_number(seed, "seed")
        self.num_seen = 0

    def forward(self, images: Tensor, indices: Sequence[int] | Tensor | None = None) -> Tensor:
        """Return the images, `(n, 3, h, w)` or one as `(3, h, w)`, corrupted; `indices` replaces the count."""
        batch = images if images.ndim != 3 else images[None]
        if indices is None:
            indices = torch.arange(self.num_seen, self.num_seen + len(batch), device=images.device)
            self.num_seen += len(batch)
        arguments: Any = {"severity": self.severity, "seed": self.seed, "preset": self.preset, "indices": indices}
        return corrupt(batch, self.name, **arguments, **self.options).view_as(images)

    def reset(self) -> None:
        """Count images from 0 again."""
        self.num_seen = 0

    def extra_repr(self) -> str:
        """Return the arguments that `print` shows."""
        return f"{self.name!r}, severity={self.severity}"


def _check_images(images: Tensor, name: str) -> None:
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise InputTypeError(f"images must be uint8, or floats in [0, 1], not {images.dtype}")
    if images.ndim != 4 or images.shape[1] != 3 or 0 in images.shape[2:]:
        if images.shape[-1:] == (3,):
            hint = "for (n, h, w, 3): images.permute(0, 3, 1, 2)"
        elif images.ndim == 4 and images.shape[1] == 1:
            hint = "gray images: images.expand(-1, 3, -1, -1)"
        else:
            hint = "one image: image[None]"
        raise InputError(f"a tensor of images must have shape (n, 3, h, w), not {tuple(images.shape)}; {hint}")
    check_side(name, *images.shape[2:])
    # On a GPU this would wait for the device; values outside are clipped there.
    if images.is_floating_point() and images.device.type == "cpu" and images.numel():
        least, most = torch.aminmax(images)
        if not (least >= 0 and most <= 1):
            raise InputError(f"images in floating point must be in [0, 1], not {least:g} to {most:g}; scale them")


def _image_keys(word: int, indices: Sequence[int] | Tensor | None, n: int, device: torch.device) -> Tensor:
    """Return a key for each image from its index; no index is read from the device."""
    if indices is None:
        index_n = torch.arange(n, device=device)
    elif isinstance(indices, Tensor):
        if indices.is_floating_point() or indices.dtype == torch.bool:
            raise InputTypeError(f"indices must be integers, not {indices.dtype}")
        index_n = indices.to(device, torch.int64, non_blocking=True)
    else:
        numbers = [as_whole_number(index, "an index") for index in indices]
        signed = [(number + 2**63) % 2**64 - 2**63 for number in numbers]
        index_n = torch.tensor(signed, dtype=torch.int64, pin_memory=device.type == "cuda").to(
            device, non_blocking=True
        )
    return random_bits(index_n * GOLDEN + word, 64)


def _apply(
    images: Tensor, name: str, keys_n: Tensor, rows: Sequence[Mapping[str, Any]], row_n: Tensor | None = None
) -> Tensor:
    """Corrupt images chunk by chunk; the result has their dtype and strides."""
    function, corrupted = TENSOR_CORRUPTIONS[name], torch.empty_like(images)
    step = max(1, (_CPU_CHUNK if images.device.type == "cpu" else _CHUNK) // (images[:1].numel() or 1))
    for start in range(0, len(images), step):
        part = slice(start, start + step)
        settings = Settings(rows, images.device, None if row_n is None else row_n[part])
        x = function(to_float(images[part]).float(), Draws(keys_n[part]), settings).clamp(0, 1)
        corrupted[part] = x if images.is_floating_point() else x * 255 + TIE
    return corrupted
