"""What a grow phase tells on its way, so that minutes of it can be shown and stopped.

The registry of training methods and the two things a method may decide: the loss of a batch, and new images.

Empirical risk minimization: cross-entropy on the source, and nothing else.
"""

import logging
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.distributed import ALONE, World
from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.core.registry import Registry
from asrnorm.methods.randomness import keyed_generator
from asrnorm.models import Classifier
from asrnorm.models.base import PARTS

Watch = Callable[[float], None]
"""Takes the part of a grow phase that is done, 0 to 1; may raise, to give the phase up."""


def look_on(done: float) -> None:
    """Do nothing about it."""


logger = logging.getLogger("asrnorm")

METHODS: Registry[Callable[..., "Method"]] = Registry("method")


class Batch(NamedTuple):
    """Labelled images of one step.

    Attributes:
        images: float `(n, 3, h, w)` in [0, 1]; the model normalizes them itself.
        labels: int64 `(n,)`.
        step: counted from the start of training; keys the randomness of the step.
        offset: place of the first image in the global batch, where several processes share one.
        total: size of the global batch; `None` is that of this one.
        rows: int64 `(n,)`, their rows in the pool; those below its `num_source` are the source's. `None` where no pool
            is known.
        drawn: what the method's `draw` gave for the step, on the device; `None` where it is yet to be drawn.

    Example:
        >>> Batch(torch.rand(4, 3, 8, 8), torch.zeros(4, dtype=torch.long), step=7).global_size
        4
    """

    images: Tensor
    labels: Tensor
    step: int = 0
    offset: int = 0
    total: int | None = None
    rows: Tensor | None = None
    drawn: Mapping[str, Tensor] | None = None

    @property
    def global_size(self) -> int:
        """Images in the batch of all processes together."""
        return len(self.labels) if self.total is None else self.total

    def own(self, drawn: Tensor) -> Tensor:
        """Return this process's rows of something drawn for the whole global batch."""
        return drawn[self.offset : self.offset + len(self.labels)]


def _describe(batch: object) -> str:
    parts = f" of {len(batch)}" if isinstance(batch, list | tuple | Mapping) else ""
    return f"{type(batch).__name__}{parts}"


def _is_unit(images: Tensor) -> bool:
    return bool(images.min() >= 0 and images.max() <= 1)


_STEPS = "own_steps"


class Images(Protocol):
    """What a grow phase sees of the training images: the source, and the domains grown so far."""

    @property
    def num_source(self) -> int:
        """How many of them are the source's."""

    @property
    def labels(self) -> Tensor:
        """Labels of all images, int64 `(n,)`."""

    def __len__(self) -> int: ...

    def images(self, rows: Tensor) -> Tensor:
        """Return images by row, float `(n, 3, h, w)`, on the device of the run."""

    def append(self, images: Tensor, labels: Tensor) -> None:
        """Add a fictitious domain; every process appends the same."""


class Method:
    """Empirical risk minimization, which the other methods change.

    A method holds no reference to model or data, but for graphs that it has captured. Randomness comes from
    `generator(step, purpose)`, never from a global one, so that a resumed or distributed run draws what an
    uninterrupted one would.

    Attributes:
        seed: of the run; set by the trainer.
        world: the processes of the run; set by the trainer.
        capturable: `loss` is a function of the batch's tensors and of `drawn` alone, shapes included, waits for nothing
            and may be captured as a CUDA graph. A class that brings its own `loss` has to say so anew.
        unit_range: `loss` changes images by the arithmetic of pixels in [0, 1], so that others would be spoiled.
        trusts_images: they are known to be in [0, 1]; set by the trainer, elsewhere once the first have been.
        keeps_growth: `grow` takes so long, next to writing a checkpoint, that one follows it.
        differentiates_twice: `loss` asks for gradients of gradients, which compiled parts of a network do not give.
        capture: capture what a grow phase repeats; set by the trainer.
        watch: `grow` calls it between its pieces with the part that is done; set by the trainer.
    """

    seed: int = 0
    world: World = ALONE
    capturable: bool = True
    unit_range: bool = False
    trusts_images: bool = False
    keeps_growth: bool = True
    differentiates_twice: bool = False
    capture: bool = False
    watch: Watch = staticmethod(look_on)
    _own_steps: int = 0
    _has_grown: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "loss" in cls.__dict__:
            cls.capturable = cls.__dict__.get("capturable", False)
            cls.loss = _for_any_loop(cls.loss)  # type: ignore[method-assign]
        if "grow" in cls.__dict__:
            cls.grow = _naming_parts(_noting_growth(cls.grow))  # type: ignore[method-assign]
        if "state_dict" in cls.__dict__:
            cls.state_dict = _with_steps(cls.state_dict)  # type: ignore[method-assign]
        if "load_state_dict" in cls.__dict__:
            cls.load_state_dict = _taking_steps(cls.load_state_dict)  # type: ignore[method-assign]

    def as_batch(self, batch: Any) -> Batch:
        """Return a `Batch`; a pair of images and labels, as a user's own loop has it, gets the next step.

        Raises:
            InputTypeError: neither.
            InputError: the first images are not in [0, 1], where the method has to know.
        """
        if isinstance(batch, Batch):
            self._check_range(batch.images)
            return batch
        first = batch[0] if isinstance(batch, list | tuple) and batch else None
        if isinstance(first, Tensor) and not first.is_floating_point():
            raise InputTypeError(
                f"images must be floating-point, these are {first.dtype}; of bytes make (images / 255, labels)"
            )
        if not isinstance(batch, list | tuple) or len(batch) != 2 or not all(isinstance(x, Tensor) for x in batch):
            raise InputTypeError(f"a batch is a pair of tensors, images and labels, or a Batch, not {_describe(batch)}")
        images, labels = batch
        self._check_range(images)
        if not self._has_grown and self.is_growing(self._own_steps):
            self._has_grown = True  # as far as it is worth another word
            logger.warning(
                "%s grows before step %d, and nobody called it: until then it is plain training; before each step: if "
                "method.is_growing(step): method.grow(model, pool, step)",
                type(self).__name__,
                self._own_steps,
            )
        self._own_steps += 1
        return Batch(images, labels, self._own_steps - 1)

    def _check_range(self, images: Tensor) -> None:
        """Refuse a loop's images outside [0, 1], where the method has to know; the first ones are enough."""
        if self.trusts_images or not self.unit_range or not images.numel():
            return
        if not _is_unit(images):
            raise InputError(
                f"{type(self).__name__} works on images in [0, 1], these are from {images.min():.3g} to "
                f"{images.max():.3g}; let the model normalize them: asrnorm.models.Normalize is a layer for it"
            )
        self.trusts_images = True

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the loss of this process's part of a batch, a mean over its samples.

        Args:
            model: a network; methods that look inside need its three parts.
            batch: a `Batch`, or a pair of images in [0, 1] and labels, whose steps are then counted here.
        """
        batch = self.as_batch(batch)
        return F.cross_entropy(model(batch.images), batch.labels)

    def draw(self, step: int, size: int) -> dict[str, Tensor]:  # noqa: ARG002
        """Return what the loss of a step takes at random, or from the step itself: small tensors on the CPU.

        Their shapes and dtypes must be those of every other step. What is large is drawn on the device from a key.

        Args:
            step: counted from the start of training.
            size: of the global batch.
        """
        return {}

    def drawn(self, batch: Batch) -> Mapping[str, Tensor]:
        """Return what `draw` gives for a batch, on its device."""
        if batch.drawn is not None:
            return batch.drawn
        drawn = self.draw(batch.step, batch.global_size)
        return {name: value.to(batch.labels.device, non_blocking=True) for name, value in drawn.items()}

    def is_growing(self, step: int) -> bool:  # noqa: ARG002
        """Tell whether `grow` is due before the update of `step`."""
        return False

    def grow(self, model: Classifier, pool: Images, step: int) -> dict[str, float]:  # noqa: ARG002
        """Change the method's state or add images to the pool; return what is worth a row in the log.

        As `watch` may raise, nothing that lasts is changed before its last call.
        """
        return {}

    def modules(self) -> dict[str, nn.Module]:
        """Return the networks of the method's own, which the trainer moves to the device of the run."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs: tensors, numbers, strings, and lists and dicts of them.

        The steps counted in a loop of the user's own are added, whatever a subclass returns.
        """
        return {_STEPS: self._own_steps} if self._own_steps else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up what `state_dict` returned."""
        self._own_steps = state.get(_STEPS, 0)

    def generator(self, step: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        """Return the generator of one purpose in one step, the same on every process and after every resume."""
        return keyed_generator(self.seed, step, purpose, device=device)


def _for_any_loop(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let a method's loss take a plain pair, and say in one line what a network lacks."""

    @wraps(loss)
    def checked(self: Method, model: nn.Module, batch: Any) -> Tensor:
        return loss(self, model, self.as_batch(batch))

    return _naming_parts(checked)


def _noting_growth(grow: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(grow)
    def noted(self: Method, *arguments: Any, **named: Any) -> Any:
        self._has_grown = True
        return grow(self, *arguments, **named)

    return noted


def _naming_parts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Say in one line that a network lacks one of the three parts which the method calls."""

    @wraps(function)
    def checked(self: Method, model: nn.Module, *arguments: Any, **named: Any) -> Any:
        try:
            return function(self, model, *arguments, **named)
        except AttributeError as error:
            lacking = [part for part in PARTS if not hasattr(model, part)]
            if error.name not in lacking:
                raise
            raise InputError(
                f"{type(self).__name__} looks inside the network, and {type(model).__name__} has no "
                f"{', '.join(lacking)}; give it features(x), embed(maps) and classify(embedding)"
            ) from error

    return checked


def _with_steps(state_dict: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    @wraps(state_dict)
    def counted(self: Method) -> dict[str, Any]:
        return {**Method.state_dict(self), **state_dict(self)}

    return counted


def _taking_steps(load_state_dict: Callable[..., None]) -> Callable[..., None]:
    @wraps(load_state_dict)
    def counted(self: Method, state: dict[str, Any]) -> None:
        load_state_dict(self, {name: value for name, value in state.items() if name != _STEPS})
        Method.load_state_dict(self, state)

    return counted


@METHODS.register("erm")
class ERM(Method):
    """ERM: the mean cross-entropy of the source images.

    Example:
        >>> ERM().is_growing(1000)
        False
    """

    def __init__(self) -> None:
        super().__init__()
