"""One interface for whatever is audited: a network in this process, or a file that something else runs."""

import hashlib
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from asrnorm.audit.form import Form, are_probabilities, find_answer, to_logits
from asrnorm.core.errors import AsrnormError, InputError, first_line

_NO_GRADIENTS = "the file has no gradients"
_INSTALLED = frozenset({"site-packages", "dist-packages"})


class Subject(ABC):
    """A model under audit.

    Attributes:
        name: as shown.
        kind: what it was loaded from.
        form: of its input.
        fingerprint: of its weights and code, and after `probe` of what it answers; results are kept under it.
        num_classes: outputs, known after `probe`.
        native_size: the size at which its own data is kept, where it has one; the audit reads images at that size.
        class_names: of the outputs, where the model knows them.
        no_gradients: why there are none; empty where there are.
        device: where images have to lie.
        num_parameters: how many numbers it has learned, where that is known.
    """

    def __init__(self, name: str, kind: str, form: Form, fingerprint: str) -> None:
        self.name, self.kind, self.form, self.fingerprint = name, kind, form, fingerprint
        self._made_of = fingerprint
        self.num_classes = 0
        self.native_size: tuple[int, int] | None = form.size
        self.class_names: tuple[str, ...] | None = None
        self.no_gradients = ""
        self.device = torch.device("cpu")
        self.num_parameters: int | None = None
        self.probabilities = False

    @property
    def has_gradients(self) -> bool:
        """Whether attacks that climb the loss can be run."""
        return not self.no_gradients

    @abstractmethod
    def answer(self, images: Tensor) -> Tensor:
        """Return what the model says to one batch in [0, 1], `(n, K)`, logits or probabilities."""

    def predict(self, images: Tensor) -> Tensor:
        """Return logits `(n, K)` in float32 on the CPU.

        Args:
            images: float `(n, 3, h, w)` in [0, 1], one batch.

        Raises:
            InputError: the model raises, returns another shape than expected, or NaN.
        """
        with torch.inference_mode():
            answer = self._call(images)
        self._check(answer, len(images))
        return to_logits(answer, self.probabilities).float().cpu()

    def probe(self, size: tuple[int, int]) -> None:
        """Try the model on two images of noise: how many outputs, logits or probabilities, gradients or none.

        Raises:
            InputError: as `predict`.
        """
        images = torch.rand((2, 3, *size), generator=torch.Generator().manual_seed(0))
        with torch.inference_mode():
            answer = self._call(images)
        self.num_classes = answer.shape[1] if answer.ndim == 2 else 0
        self._check(answer, len(images))
        self.probabilities = are_probabilities(answer)
        self.fingerprint = hashlib.sha256(f"{self._made_of}{_sketch(answer)}".encode()).hexdigest()[:16]

    def describe_answer(self) -> str:
        """Return what its answers are taken for."""
        return f"outputs taken for {'probabilities' if self.probabilities else 'logits'}"

    def _call(self, images: Tensor) -> Tensor:
        try:
            return self.answer(images.to(self.device))
        except AsrnormError as error:
            raise InputError(f"{self.name} {error}") from error
        except Exception as error:  # someone else's code: anything can come
            raise InputError(
                f"{self.name} raised {type(error).__name__} on images {tuple(images.shape)}: {first_line(error)}; "
                "try another --size, or call it yourself"
            ) from error

    def _check(self, answer: Tensor, count: int) -> None:
        if answer.ndim != 2 or len(answer) != count or answer.shape[1] != self.num_classes or self.num_classes < 2:
            raise InputError(
                f"{self.name} returns {tuple(answer.shape)} for {count} images; expected ({count}, number of classes)"
            )
        bad = int((~answer.isfinite().all(1)).sum())
        if bad:
            raise InputError(
                f"{self.name}: NaN or infinite outputs for {bad} of {count} images; "
                "its weights are damaged, or --mean and --std do not fit it"
            )


class UnitInput(nn.Module):
    """A foreign network behind images in [0, 1], in evaluation mode for good; attacks take it for a classifier."""

    def __init__(self, network: nn.Module, form: Form, dtype: torch.dtype) -> None:
        super().__init__()
        self.network = network
        self.form, self.dtype = form, dtype
        self.probabilities = False
        # Attacks ask the first parameter for the dtype of images; a network may have none, or one of another dtype.
        self.unit = nn.Parameter(torch.ones(()), requires_grad=False)

    def train(self, mode: bool = True) -> "UnitInput":  # noqa: ARG002
        """Stay in evaluation mode: an exported program cannot leave it, and an audit has no reason to."""
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        return to_logits(self.answer(images), self.probabilities)

    def answer(self, images: Tensor) -> Tensor:
        """Return what the network says, as it says it."""
        parts = self.form.split(self.form.prepare(images).to(self.dtype))
        answers = [find_answer(self.network(part)) for part in parts]
        return (torch.cat(answers) if len(answers) > 1 else answers[0])[: len(images)]


class ModuleSubject(Subject):
    """A network in this process.

    Args:
        name: as shown.
        network: returns logits or probabilities; put in evaluation mode unless `exported`.
        form: of its input.
        device: where it is moved, unless `exported`.
        kind: what it was loaded from.
        source: of its code, which goes into the fingerprint.
        exported: an exported program, which neither moves nor changes its mode.

    Example:
        >>> subject = ModuleSubject("toy", nn.Sequential(nn.Flatten(), nn.Linear(12, 5)))
        >>> subject.probe((2, 2))
        >>> subject.num_classes, subject.has_gradients, subject.predict(torch.rand(4, 3, 2, 2)).shape
        (5, True, torch.Size([4, 5]))
    """

    def __init__(
        self,
        name: str,
        network: nn.Module,
        form: Form | None = None,
        *,
        device: torch.device | str = "cpu",
        kind: str = "module",
        source: bytes = b"",
        exported: bool = False,
    ) -> None:
        form = form or Form()
        super().__init__(name, kind, form, _fingerprint(network, source))
        if not exported:
            network.to(device).eval()
        dtype = next((p.dtype for p in network.parameters() if p.is_floating_point()), torch.float32)
        self.device = torch.device(device)
        self.num_parameters = sum(parameter.numel() for parameter in network.parameters())
        self.module = UnitInput(network, form, dtype)
        self.module.training = False

    def answer(self, images: Tensor) -> Tensor:
        """Return what the network says."""
        return self.module.answer(images)

    def probe(self, size: tuple[int, int]) -> None:
        """Try the network, and whether a gradient comes back to the images."""
        super().probe(size)
        self.module.probabilities = self.probabilities
        try:
            images = torch.rand((1, 3, *size), device=self.device, requires_grad=True)
            torch.autograd.grad(self.module(images).sum(), images)
        except Exception:  # a program exported without gradients, quantized layers: whatever they raise
            self.no_gradients = _NO_GRADIENTS if self.kind == "torch-export" else "the network has no gradients"


def _fingerprint(network: nn.Module, source: bytes) -> str:
    """Return a hash of weights, structure and code: networks with equal weights may still compute different things."""
    digest = hashlib.sha256(source)
    digest.update(repr(network).encode())
    kinds = {kind for module in network.modules() for kind in type(module).__mro__ if kind is not object}
    for kind in sorted(kinds, key=lambda kind: (kind.__module__, kind.__qualname__)):
        digest.update(f"{kind.__qualname__}\n{_read_code(kind)}".encode())
    for path in _own_files(kinds):
        digest.update(path.read_bytes())
    # Buffers that are not saved are no part of the state.
    for name, value in sorted({**dict(network.named_buffers()), **network.state_dict()}.items()):
        for content in hashed_tensors(name, value):
            digest.update(content)
    return digest.hexdigest()[:16]


def hashed_tensors(name: str, value: object) -> Iterator[bytes]:
    """Return what is hashed of a tensor, or of those in a tuple, as quantized layers keep theirs."""
    if isinstance(value, tuple | list):
        for part in value:
            yield from hashed_tensors(name, part)
    elif isinstance(value, Tensor):
        yield f"{name}{tuple(value.shape)}{value.dtype}".encode()
        plain = value.dequantize() if value.is_quantized else value
        yield plain.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def _sketch(answer_nk: Tensor) -> str:
    """A few digits of an answer, for what no hash of weights sees: a threshold read from a file, say.

    Four sums of many terms, so that rounding, which may differ from one call to the next, hardly ever shows.
    """
    answer = answer_nk.detach().double().cpu()
    directions = torch.randn((answer.numel(), 4), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return " ".join(f"{value:.3e}" for value in answer.flatten() @ directions)


def _own_files(kinds: Iterable[type]) -> list[Path]:
    """Return the files of all modules that lie beside a user's own classes: what their code calls may be there."""
    files = {
        name: Path(file)
        for name, module in list(sys.modules.items())
        if (file := getattr(module, "__file__", None)) and Path(file).suffix == ".py" and Path(file).is_file()
    }
    own = {name: path for name, path in files.items() if not _INSTALLED & set(path.parts) and not _is_shipped(name)}
    named = {kind.__module__ for kind in kinds if kind.__module__ in own}
    # The whole package of a class, or the folder of a file that is in none.
    homes = {[*own[name].parents][: max(1, name.count("."))][-1] for name in named}
    return sorted(path for path in set(own.values()) if homes & set(path.parents))


def _is_shipped(name: str) -> bool:
    top = name.partition(".")[0]
    return top in sys.stdlib_module_names or top in ("asrnorm", "torch", "__main__")


def _read_code(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # made in an interactive session, or compiled
        return ""
