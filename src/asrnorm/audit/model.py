"""Models under audit: one interface for networks in this process and for files that another runtime executes."""

import hashlib
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.device_memory import InParts
from asrnorm.core.errors import AsrnormError, DeviceMemoryError, InputError, first_line

NO_GRADIENTS = "the file has no gradients"
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_SHIPPED = sys.stdlib_module_names | {"asrnorm", "torch", "__main__"}
_SMALLEST_PROBABILITY = 1e-12  # its logarithm must be finite
# How far a sum of probabilities may be from 1: by rounding in bfloat16, and by half a step of 8 bits per class.
_ROUNDING, _STEP, _MOST_OFF = 4e-3, 1 / 512, 0.05


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """What a model expects of its input; images come as floats in [0, 1]."""

    mean: tuple[float, float, float] | None = None  # subtracted from each channel; `None` leaves the values in [0, 1]
    std: tuple[float, float, float] | None = None  # divides each channel
    size: tuple[int, int] | None = None  # height and width that the model takes; `None` takes any
    batch: int | None = None  # the only batch size that the model takes; `None` takes any

    def __post_init__(self) -> None:
        if (self.mean is None) != (self.std is None):
            raise InputError("--mean and --std belong together: give three numbers for each")
        if self.std is not None and min(self.std) <= 0:
            raise InputError(f"--std must be positive, not {' '.join(f'{value:g}' for value in self.std)}")
        if self.mean is not None and max(self.mean) > 1:
            raise InputError("--mean and --std are for values in [0, 1]: divide those for 0 to 255 by 255")

    def describe(self) -> str:
        """Return a description in a few words.

        Example:
            >>> InputSpec(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25), batch=8).describe()
            'normalized by mean 0.5 0.5 0.5, deviation 0.25 0.25 0.25; 8 images at a time'
        """
        parts = ["values in [0, 1]"]
        if self.mean is not None and self.std is not None:
            mean, std = (" ".join(f"{value:g}" for value in values) for values in (self.mean, self.std))
            parts = [f"normalized by mean {mean}, deviation {std}"]
        parts += [f"{self.size[0]}x{self.size[1]} pixels"] if self.size else []
        return "; ".join([*parts, *([f"{self.batch} images at a time"] if self.batch else [])])

    def prepare(self, images: Tensor) -> Tensor:
        """Return images `(n, 3, h, w)` in [0, 1] resized and normalized as the model expects."""
        if self.size is not None and tuple(images.shape[2:]) != self.size:
            images = F.interpolate(images, self.size, mode="bilinear", antialias=True)
        if self.mean is None or self.std is None:
            return images
        mean, std = (images.new_tensor(values).view(1, 3, 1, 1) for values in (self.mean, self.std))
        return (images - mean) / std

    def split(self, images: Tensor) -> list[Tensor]:
        """Return batches of the fixed size; the last one is padded with copies of its last image."""
        if self.batch is None:
            return [images]
        parts = list(images.split(self.batch))
        if short := self.batch - len(parts[-1]):
            parts[-1] = torch.cat([parts[-1], parts[-1][-1:].expand(short, *images.shape[1:])])
        return parts


class AuditedModel(ABC):
    """A model under audit; `kind` is what it was loaded from."""

    def __init__(self, name: str, kind: str, input_spec: InputSpec, fingerprint: str) -> None:
        self.name, self.kind, self.input_spec = name, kind, input_spec
        self.fingerprint = fingerprint  # of weights and code, after `probe` also of the output on noise; keys the cache
        self._code_and_weights = fingerprint
        self.num_classes = 0  # set by `probe`
        self.native_size: tuple[int, int] | None = input_spec.size  # of its own data; images are read at that size
        self.class_names: tuple[str, ...] | None = None  # of the outputs, if the model knows them
        self.no_gradients = ""  # why attacks cannot run; empty if they can
        self.device = torch.device("cpu")  # where images must be
        self.num_parameters: int | None = None
        self.probabilities = False  # rather than logits; set by `probe`
        self._in_parts = InParts()

    @property
    def has_gradients(self) -> bool:
        """Whether gradient attacks can run."""
        return not self.no_gradients

    @abstractmethod
    def outputs(self, images: Tensor) -> Tensor:
        """Return the model's logits or probabilities `(n, K)` for one batch of images in [0, 1]."""

    def predict(self, images: Tensor) -> Tensor:
        """Return logits `(n, K)` in float32 on the CPU for one batch of images in [0, 1], float `(n, 3, h, w)`.

        Raises:
            InputError: the model raises, or returns another shape or non-finite values.
        """
        outputs = self._call(images)
        self._check(outputs, len(images))
        return to_logits(outputs, self.probabilities).float().cpu()

    def probe(self, size: tuple[int, int]) -> None:
        """Run the model on two images of noise to find its number of classes and the kind of its outputs."""
        images = torch.rand((2, 3, *size), generator=torch.Generator().manual_seed(0))
        outputs = self._call(images)
        self.num_classes = outputs.shape[1] if outputs.ndim == 2 else 0
        self._check(outputs, len(images))
        self.probabilities = are_probabilities(outputs)
        self.fingerprint = hashlib.sha256(f"{self._code_and_weights}{_sketch(outputs)}".encode()).hexdigest()[:16]

    def describe_input(self) -> str:
        """Return what goes in and how the outputs are read, in a few words."""
        kind = "probabilities" if self.probabilities else "logits"
        return f"{self.input_spec.describe()}; outputs taken for {kind}"

    def _call(self, images: Tensor) -> Tensor:
        try:
            with torch.inference_mode():
                # In eval mode images do not depend on each other.
                return self._in_parts(lambda part: self.outputs(part.to(self.device)), images)
        except DeviceMemoryError as error:
            raise DeviceMemoryError(f"{self.name}: {error}; try a smaller --size") from None
        except AsrnormError as error:
            raise InputError(f"{self.name} {error}") from error
        except Exception as error:  # the user's code may raise anything
            raise InputError(
                f"{self.name} raised {type(error).__name__} on images {tuple(images.shape)}: {first_line(error)}; "
                "try another --size, or call it yourself"
            ) from error

    def _check(self, outputs: Tensor, count: int) -> None:
        if outputs.ndim != 2 or len(outputs) != count or outputs.shape[1] != self.num_classes or self.num_classes < 2:
            raise InputError(
                f"{self.name} returns {tuple(outputs.shape)} for {count} images; expected ({count}, number of classes)"
            )
        if bad := int((~outputs.isfinite().all(1)).sum()):
            raise InputError(
                f"{self.name}: NaN or infinite outputs for {bad} of {count} images; "
                "check the weights file, --mean and --std"
            )


class UnitInput(nn.Module):
    """Wraps a network to take images in [0, 1] and return logits; always in evaluation mode."""

    def __init__(self, network: nn.Module, input_spec: InputSpec, dtype: torch.dtype) -> None:
        super().__init__()
        self.network = network
        self.input_spec, self.dtype = input_spec, dtype
        self.probabilities = False
        # Attacks read the dtype of images from the first parameter; a network may have none, or one of another dtype.
        self.unit = nn.Parameter(torch.ones(()), requires_grad=False)

    def train(self, mode: bool = True) -> "UnitInput":  # noqa: ARG002
        """Ignore the mode: an exported program cannot change it, and an audit never trains."""
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        return to_logits(self.outputs(images), self.probabilities)

    def outputs(self, images: Tensor) -> Tensor:
        """Return the network's logits or probabilities."""
        parts = self.input_spec.split(self.input_spec.prepare(images).to(self.dtype))
        outputs = [find_outputs(self.network(part)) for part in parts]
        return (torch.cat(outputs) if len(outputs) > 1 else outputs[0])[: len(images)]


class AuditedModule(AuditedModel):
    """A network in this process, which returns logits or probabilities; it is moved and set to evaluation mode.

    An `exported` program can neither be moved nor change its mode. The fingerprint includes `source`, its code.

    Example:
        >>> model = AuditedModule("toy", nn.Sequential(nn.Flatten(), nn.Linear(12, 5)))
        >>> model.probe((2, 2))
        >>> model.num_classes, model.has_gradients, model.predict(torch.rand(4, 3, 2, 2)).shape
        (5, True, torch.Size([4, 5]))
    """

    def __init__(
        self,
        name: str,
        network: nn.Module,
        input_spec: InputSpec | None = None,
        *,
        device: torch.device | str = "cpu",
        kind: str = "module",
        source: bytes = b"",
        exported: bool = False,
    ) -> None:
        input_spec = input_spec or InputSpec()
        super().__init__(name, kind, input_spec, _fingerprint(network, source))
        if not exported:
            network.to(device).eval()
        dtype = next((p.dtype for p in network.parameters() if p.is_floating_point()), torch.float32)
        self.device = torch.device(device)
        self.num_parameters = sum(parameter.numel() for parameter in network.parameters())
        self.module = UnitInput(network, input_spec, dtype)
        self.module.training = False

    def outputs(self, images: Tensor) -> Tensor:
        """Return the network's logits or probabilities."""
        return self.module.outputs(images)

    def probe(self, size: tuple[int, int]) -> None:
        """Run the network on noise, and try a gradient with respect to the images."""
        super().probe(size)
        self.module.probabilities = self.probabilities
        try:
            images = torch.rand((1, 3, *size), device=self.device, requires_grad=True)
            torch.autograd.grad(self.module(images).sum(), images)
        except Exception:  # programs exported without gradients and quantized layers raise various classes
            self.no_gradients = NO_GRADIENTS if self.kind == "torch-export" else "the network has no gradients"


def find_outputs(result: Any) -> Tensor:
    """Return the logits or probabilities in what a network returns: a tensor, a tuple that starts with it, or `logits`.

    Example:
        >>> find_outputs({"logits": torch.ones(1, 2)}).shape, find_outputs((torch.ones(3, 2), None)).shape
        (torch.Size([1, 2]), torch.Size([3, 2]))
    """
    if isinstance(result, Mapping) and "logits" in result:
        result = result["logits"]
    elif hasattr(result, "logits"):
        result = result.logits
    elif isinstance(result, tuple | list) and result:
        result = result[0]
    if not isinstance(result, Tensor):
        raise InputError(f"returns {type(result).__name__}, not a tensor of logits")
    return result


def are_probabilities(outputs_nk: Tensor) -> bool:
    """Return whether rows lie in [0, 1] and sum to 1, up to the rounding of low precision."""
    x = outputs_nk.detach().double()
    tolerance = min(max(_ROUNDING, _STEP * x.shape[1]), _MOST_OFF)
    within = bool(((x >= 0) & (x <= 1 + _ROUNDING)).all())
    return within and x.shape[1] > 1 and bool(((x.sum(1) - 1).abs() <= tolerance).all())


def to_logits(outputs: Tensor, probabilities: bool) -> Tensor:
    """Return logits; of probabilities, the logarithms, whose softmax gives the probabilities back."""
    outputs = outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs
    return outputs.clamp(min=_SMALLEST_PROBABILITY).log() if probabilities else outputs


def tensor_bytes(name: str, value: object) -> Iterator[bytes]:
    """Yield the bytes to hash of a tensor, or of the tensors in a tuple, as quantized layers store them."""
    if isinstance(value, tuple | list):
        for part in value:
            yield from tensor_bytes(name, part)
    elif isinstance(value, Tensor):
        yield f"{name}{tuple(value.shape)}{value.dtype}".encode()
        plain = value.dequantize() if value.is_quantized else value
        yield plain.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def _fingerprint(network: nn.Module, source: bytes) -> str:
    """Return a hash of weights, structure and code; equal weights alone do not make two networks equal."""
    digest = hashlib.sha256(source)
    digest.update(repr(network).encode())
    kinds = {kind for module in network.modules() for kind in type(module).__mro__ if kind is not object}
    for kind in sorted(kinds, key=lambda kind: (kind.__module__, kind.__qualname__)):
        digest.update(f"{kind.__qualname__}\n{_read_code(kind)}".encode())
    for path in _own_files(kinds):
        digest.update(path.read_bytes())
    # Non-persistent buffers are missing from the state dict.
    for name, value in sorted({**dict(network.named_buffers()), **network.state_dict()}.items()):
        for content in tensor_bytes(name, value):
            digest.update(content)
    return digest.hexdigest()[:16]


def _sketch(outputs_nk: Tensor) -> str:
    """Return a few digits of an output, to notice what no hash of weights shows, such as a threshold read from a file.

    Four random projections: rounding, which may differ between calls, almost never changes their leading digits.
    """
    outputs = outputs_nk.detach().double().cpu()
    directions = torch.randn((outputs.numel(), 4), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return " ".join(f"{value:.3e}" for value in outputs.flatten() @ directions)


def _own_files(kinds: Iterable[type]) -> list[Path]:
    """Return the files of all loaded modules in the same package or folder as the user's classes."""
    files = {
        name: Path(file)
        for name, module in list(sys.modules.items())
        if (file := getattr(module, "__file__", None)) and Path(file).suffix == ".py" and Path(file).is_file()
    }
    own = {
        name: path
        for name, path in files.items()
        if not _INSTALLED & set(path.parts) and name.partition(".")[0] not in _SHIPPED
    }
    named = {kind.__module__ for kind in kinds if kind.__module__ in own}
    # The top package of a class, or the folder of a file outside packages.
    homes = {[*own[name].parents][: max(1, name.count("."))][-1] for name in named}
    return sorted(path for path in set(own.values()) if homes & set(path.parents))


def _read_code(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # defined in an interactive session, or compiled
        return ""
