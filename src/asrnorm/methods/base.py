"""What a training method decides: the loss of a batch, and what to generate between updates."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.distributed import ALONE, World
from asrnorm.core.randomness import keyed_generator
from asrnorm.core.registry import Registry
from asrnorm.data.augment.named import Spec
from asrnorm.models import Classifier

METHODS: Registry[Callable[..., "Method"]] = Registry("method")

OnProgress = Callable[[float], None]
"""Called during a grow phase with the fraction that is done, 0 to 1; may raise to interrupt the phase."""


class Batch(NamedTuple):
    """Labelled images of one step.

    Attributes:
        images: float `(n, 3, h, w)` in [0, 1]; the model normalizes them itself.
        labels: int64 `(n,)`.
        step: counted from the start of training; keys the randomness of the step.
        offset: index of the first image in the global batch, where several processes share one.
        total: size of the global batch; `None` is that of this one.
        rows: int64 `(n,)`, their rows in the pool; those below its `num_source` are the source's. `None` where no pool
            is known.
        drawn: what the method's `draw` returned for the step, on the device; `None` where it is not drawn yet.
        views: the images under each chain of the method's `views`, the first of them `images`; empty where it has none.

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
    views: tuple[Tensor, ...] = ()

    @property
    def global_size(self) -> int:
        """Number of images in the batch of all processes together."""
        return len(self.labels) if self.total is None else self.total

    def own(self, drawn: Tensor) -> Tensor:
        """Return this process's rows of a tensor that was drawn for the whole global batch."""
        return drawn[self.offset : self.offset + len(self.labels)]


class Images(Protocol):
    """The training images as a grow phase sees them: the source, and the domains generated so far."""

    @property
    def num_source(self) -> int:
        """Number of source images; they come first."""

    @property
    def labels(self) -> Tensor:
        """Labels of all images, int64 `(n,)`."""

    def __len__(self) -> int: ...

    def images(self, rows: Tensor) -> Tensor:
        """Return images by row, float `(n, 3, h, w)`, on the device of the run."""

    def append(self, images: Tensor, labels: Tensor) -> None:
        """Add a generated domain; every process appends the same."""


class Method:
    """Empirical risk minimization; the other methods override its hooks.

    A method holds no reference to the model or the data, except in CUDA graphs that it has captured. Its random numbers
    come from `generator(step, purpose)` and never from a global generator, so that a resumed or distributed run draws
    the same numbers as an uninterrupted one.

    Attributes:
        seed: of the run.
        world: the processes of the run; set by the trainer, as the next two.
        capture: capture the repeated parts of a grow phase as CUDA graphs.
        on_progress: `grow` calls it between its parts with the fraction that is done.
        capturable: `loss` depends only on the tensors of the batch and on `drawn`, has fixed shapes and never waits for
            the device, so that a training step may be captured as a CUDA graph. It describes the `loss` of the class
            that sets it: a subclass with its own `loss` must set it again (see `is_capturable`).
        unit_range: `loss` does arithmetic on pixels in [0, 1], so that images in another range must be rejected.
        checkpoint_after_grow: `grow` takes much longer than writing a checkpoint, so that one follows it.
        differentiates_twice: `loss` takes second derivatives, which compiled parts of a network do not support.
        views: augmentations, each for one view of every image; `Batch.views` has them. None gives one view.
        shared: the views of an image differ by `views` alone, not by what the config's `augment` draws.
    """

    seed: int = 0
    world: World = ALONE
    capture: bool = False
    on_progress: OnProgress = staticmethod(lambda done: None)  # noqa: ARG005
    capturable: bool = True
    unit_range: bool = False
    checkpoint_after_grow: bool = True
    differentiates_twice: bool = False
    views: Sequence[Spec] = ()
    shared: bool = True

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the mean loss over this process's part of a batch.

        Args:
            model: a network; some methods call its three parts, `features`, `embed` and `classify`.
            batch: a `Batch`; methods from `create_method` also take a pair of images in [0, 1] and labels.
        """
        return F.cross_entropy(model(batch.images), batch.labels)

    def draw(self, step: int, size: int) -> dict[str, Tensor]:  # noqa: ARG002
        """Return what the loss of a step draws at random or computes from the step number: small tensors on the CPU.

        Shapes and dtypes must be the same in every step. Draw large tensors on the device, from a key.

        Args:
            step: counted from the start of training.
            size: of the global batch.
        """
        return {}

    def drawn(self, batch: Batch) -> Mapping[str, Tensor]:
        """Return what `draw` returns for the step of a batch, on the batch's device."""
        if batch.drawn is not None:
            return batch.drawn
        drawn = self.draw(batch.step, batch.global_size)
        return {name: value.to(batch.labels.device, non_blocking=True) for name, value in drawn.items()}

    def is_growing(self, step: int) -> bool:  # noqa: ARG002
        """Tell whether `grow` is due before the update of `step`."""
        return False

    def grow(self, model: Classifier, pool: Images, step: int) -> dict[str, float]:  # noqa: ARG002
        """Add images to the pool or change the method's state; return numbers for the log.

        `on_progress` may raise, so that no lasting change may be made before its last call.
        """
        return {}

    def modules(self) -> dict[str, nn.Module]:
        """Return the method's own networks, which the trainer moves to the device of the run."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs: tensors, numbers, strings, and lists and dicts of them."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""

    def generator(self, step: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        """Return the generator for one purpose in one step, the same on every process and after every resume."""
        return keyed_generator(self.seed, step, purpose, device=device)


def is_capturable(method: Method) -> bool:
    """Tell whether a method's `loss` may be captured: the class that defines it, or a subclass, says `capturable`.

    Example:
        >>> class Mine(Method):
        ...     def loss(self, model, batch):
        ...         return model(batch.images).square().mean()
        >>> is_capturable(Method()), is_capturable(Mine())
        (True, False)
    """
    if "capturable" in vars(method):  # decided by an option, as a wrapper does
        return bool(vars(method)["capturable"])
    for owner in type(method).__mro__:
        if "capturable" in vars(owner):
            return bool(vars(owner)["capturable"])
        if "loss" in vars(owner):
            return False
    return False


@METHODS.register("erm")
class ERM(Method):
    """ERM: the mean cross-entropy of the source images.

    Example:
        >>> ERM().is_growing(1000)
        False
    """
