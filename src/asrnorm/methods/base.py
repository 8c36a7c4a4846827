"""What a training method decides: the loss of a batch, and what to generate between updates."""

from collections.abc import Callable, Mapping, Sequence
from math import inf, nextafter
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.distributed import ALONE, World, sum_over_processes
from asrnorm.core.errors import InputError
from asrnorm.core.frozen_eval import evaluating
from asrnorm.core.randomness import keyed_generator
from asrnorm.core.registry import Registry
from asrnorm.data.augment.named import Spec
from asrnorm.models import Classifier

METHODS: Registry[Callable[..., "Method"]] = Registry("method")

BELOW_ONE = nextafter(1.0, 0.0)
"""The largest value of an option that must be below 1."""

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
        domains: int64 `(n,)`, the source domain of each image, -1 for generated ones; `None` with a single source.

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
    domains: Tensor | None = None

    @property
    def global_size(self) -> int:
        """Number of images in the batch of all processes together."""
        return len(self.labels) if self.total is None else self.total

    def own(self, drawn: Tensor) -> Tensor:
        """Return this process's rows of a tensor that was drawn for the whole global batch."""
        return drawn[self.offset : self.offset + len(self.labels)]

    def whole(self, own: Tensor, world: World) -> Tensor:
        """Return the rows of all processes as one differentiable tensor, the global batch; the inverse of `own`.

        A loss of the whole batch that every process computes counts once: the trainer weights each by its share.
        """
        if world.size == 1:
            return own
        after = self.global_size - self.offset - len(own)
        parts = [own.new_zeros((self.offset, *own.shape[1:])), own, own.new_zeros((after, *own.shape[1:]))]
        return sum_over_processes(torch.cat(parts))


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
        world: the processes of the run; set by the trainer, as the next four.
        capture: capture the repeated parts of a grow phase as CUDA graphs.
        on_progress: `grow` calls it between its parts with the fraction that is done.
        total_steps: number of updates in the run's schedule; 0 where it is not known.
        fetch: returns the augmented batch of a step, for a `grow` that trains; `None` where it is not known.
        trained: the networks that `build` created, by name.
        capturable: `loss` depends only on the tensors of the batch and on `drawn`, has fixed shapes and never waits for
            the device, so that a training step may be captured as a CUDA graph. It describes the `loss` of the class
            that sets it: a subclass with its own `loss` must set it again (see `is_capturable`).
        unit_range: `loss` does arithmetic on pixels in [0, 1], so that images in another range must be rejected.
        checkpoint_after_grow: `grow` takes much longer than writing a checkpoint, so that one follows it.
        differentiates_twice: `loss` takes second derivatives, which compiled parts of a network do not support.
        views: augmentations, each for one view of every image; `Batch.views` has them. None gives one view.
        shared: the views of an image differ by `views` alone, not by what the config's `augment` draws.
        ranges: least and largest value of options; the constructor raises `InputError` for others.
    """

    ranges: ClassVar[Mapping[str, tuple[float, float]]] = MappingProxyType({})

    seed: int = 0
    world: World = ALONE
    capture: bool = False
    on_progress: OnProgress = staticmethod(lambda done: None)  # noqa: ARG005
    total_steps: int = 0
    fetch: Callable[[int], Batch] | None = None
    trained: Mapping[str, nn.Module] = MappingProxyType({})
    _is_built: bool = False
    capturable: bool = True
    unit_range: bool = False
    checkpoint_after_grow: bool = True
    differentiates_twice: bool = False
    views: Sequence[Spec] = ()
    shared: bool = True

    def __post_init__(self) -> None:
        name = next((name for name in METHODS if METHODS[name] is type(self)), type(self).__name__)
        ranges = [item for owner in type(self).__mro__ for item in vars(owner).get("ranges", {}).items()]
        for option, (least, most) in ranges:
            value = getattr(self, option)
            if not least <= value <= most:
                allowed = {inf: f"at least {least}", BELOW_ONE: "at least 0 and below 1"}.get(
                    most, f"in {least}..{most}"
                )
                raise InputError(f"{name}: {option} must be {allowed}, not {value:g}")

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
        """Return the networks that `grow` trains by itself, which the trainer moves to the device of the run."""
        return {}

    def create_trained(self, model: Classifier, example: Tensor) -> dict[str, nn.Module]:  # noqa: ARG002
        """Return the networks that `loss` trains together with the model, newly initialized; called by `build`."""
        return {}

    def build(self, model: Classifier, example: Tensor) -> None:
        """Create the networks that `loss` trains, from the seed, on the device and in the precision of the model.

        The trainer calls it before the first step and trains them as it trains the classifier. In a loop of one's own,
        call it and give `parameters()` to the optimizer.

        Args:
            model: the network to be trained.
            example: images as `loss` will see them; only their shape matters.
        """
        if type(self).create_trained is Method.create_trained:
            return
        self._is_built = True
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(keyed_generator(self.seed, "method").initial_seed())
            self.trained = self.create_trained(model, example)
        like = next(model.parameters())
        for module in self.trained.values():
            module.to(like.device, like.dtype)

    @property
    def is_built(self) -> bool:
        """Whether the method has the networks that `loss` needs."""
        return self._is_built or type(self).create_trained is Method.create_trained

    def parameters(self) -> list[nn.Parameter]:
        """Return the parameters of the networks that `build` created."""
        return [parameter for module in self.trained.values() for parameter in module.parameters()]

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs: tensors, numbers, strings, and lists and dicts of them."""
        states = {name: module.state_dict() for name, module in self.trained.items()}
        return {"trained": states} if states else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; a method with networks of its own must have been built."""
        require_built(self)
        for name, module in self.trained.items():
            module.load_state_dict(state["trained"][name])

    def generator(self, step: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        """Return the generator for one purpose in one step, the same on every process and after every resume."""
        return keyed_generator(self.seed, step, purpose, device=device)


def require_built(method: Method) -> None:
    """Raise `InputError` if the networks of a method do not exist yet."""
    if not method.is_built:
        raise InputError(
            f"{type(method).__name__} trains a network of its own: call method.build(model, images) first, and give "
            "method.parameters() to the optimizer"
        )


def embedding_size(model: Classifier, example: Tensor) -> int:
    """Return the length of the vector before the classifier, for a head beside it."""
    with evaluating(model), torch.no_grad():
        return model.embed(model.features(example.to(next(model.parameters())))).shape[1]


def is_capturable(method: Method) -> bool:
    """Tell whether a method's `loss` may be captured: the class that defines it, or a subclass, says `capturable`."""
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
    """ERM: the mean cross-entropy of the source images."""
