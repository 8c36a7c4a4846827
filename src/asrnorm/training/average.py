"""Averages of the weights along a run: exponential (EMA), of its last part (SWA), or of its flat part (SWAD).

Izmailov et al., *Averaging Weights Leads to Wider Optima and Better Generalization*, UAI 2018. Cha et al., *SWAD:
Domain Generalization by Seeking Flat Minima*, NeurIPS 2021.

Every update moves the average towards the weights by a share that depends on the step alone, so that it is part of a
captured step. `torch.optim.swa_utils.AveragedModel` computes the same, but reads its counter on the host in every step.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from asrnorm.conversion import reestimate
from asrnorm.conversion.calibration import tracks_statistics
from asrnorm.core.config import RunConfig
from asrnorm.core.errors import InputError
from asrnorm.core.registry import Registry

AVERAGES: Registry[Callable[..., "Average"]] = Registry("average")

Measure = Callable[[nn.Module], float]
Segment = tuple[int, list[Tensor]]
"""A number of steps, and the mean of the weights after each of them."""

_MEASURED = ("_losses", "_start", "_end", "_limit", "_last", "_pending", "_total")


class Average(ABC):
    """A running average of the parameters of a network.

    Args:
        reestimate: source batches on which running statistics are estimated for the averaged weights.
    """

    def __init__(self, *, reestimate: int = 50) -> None:
        if reestimate < 1:
            raise InputError(f"average.reestimate must be at least 1, not {reestimate}")
        self.reestimate = reestimate

    def attach(self, model: nn.Module, config: RunConfig) -> None:
        """Start to average the parameters of a model on its device."""
        self._parameters = [parameter.detach() for parameter in model.parameters()]
        self.weights = [parameter.clone() for parameter in self._parameters]
        self._move = self.weights[0].new_zeros(())  # in the weights' dtype, for which one launch serves many tensors
        self.steps, self.every = config.steps, config.evaluate_every

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that `update` changes or reads, which stay in place."""
        return [*self.weights, self._move]

    @abstractmethod
    def share(self, step: int) -> float:
        """Return how far the update of a step moves the average: 0 leaves it, 1 makes it the weights."""

    def exists(self, step: int) -> bool:
        """Tell whether there is an average after `step` updates."""
        return step > 0

    def set_share(self, share: float | Tensor) -> None:
        """Set how far the next `update` moves, by a number or a tensor on the device."""
        self._move.copy_(share) if isinstance(share, Tensor) else self._move.fill_(share)

    def update(self) -> None:
        """Move the average towards the weights; nothing is read back."""
        # Not as a sum of two products: a rounded `1 - share` would shrink or stretch the average a little every time.
        difference = torch._foreach_sub(self._parameters, self.weights)
        torch._foreach_mul_(difference, self._move)
        torch._foreach_add_(self.weights, difference)

    def consider(self, model: nn.Module, step: int) -> dict[str, float] | None:  # noqa: ARG002
        """Look at the model after `step` updates, every `evaluate_every`; return numbers for the log."""
        return None

    def result(self) -> list[Tensor]:
        """Return the averaged parameters in the order of the model's."""
        return self.weights

    def adopt(self, model: nn.Module, images: Iterable[Tensor]) -> None:
        """Give a model the averaged weights, and running statistics estimated with them on source images."""
        torch._foreach_copy_(self._parameters, self.result())
        if any(tracks_statistics(module) for module in model.modules()):
            reestimate(model, images)

    @contextmanager
    def applied(self, model: nn.Module, images: Iterable[Tensor]) -> Iterator[None]:
        """Within it, a model has what `adopt` gives it; afterwards its own weights and statistics again, in place."""
        tensors = [*self._parameters, *model.buffers()]
        before = [tensor.clone() for tensor in tensors]
        try:
            self.adopt(model, images)
            yield
        finally:
            torch._foreach_copy_(tensors, before)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {"weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, in place."""
        for own, kept in zip(self.weights, state["weights"], strict=True):
            own.copy_(kept)


@AVERAGES.register("ema")
class EMA(Average):
    r"""EMA: $\bar\theta \leftarrow d\,\bar\theta + (1 - d)\,\theta$ after every step, from the first step's weights on.

    Args:
        decay: $d$.
        reestimate: source batches on which running statistics are estimated for the averaged weights.
    """

    def __init__(self, *, decay: float = 0.999, reestimate: int = 50) -> None:
        super().__init__(reestimate=reestimate)
        if not 0 <= decay < 1:
            raise InputError(f"average.decay must be at least 0 and below 1, not {decay}")
        self.decay = decay

    def share(self, step: int) -> float:
        """Return `1 - decay`, and 1 in the first step."""
        return 1 - self.decay if step else 1.0


@AVERAGES.register("swa")
class SWA(Average):
    """SWA: the mean of the weights after every `interval` steps of the last part of the run.

    Paper: with a high constant or cyclic rate in that part; here the rate is the schedule's.

    Args:
        start: share of the run's steps after which averaging starts.
        interval: steps between the weights that are averaged.
        reestimate: source batches on which running statistics are estimated for the averaged weights.
    """

    def __init__(self, *, start: float = 0.5, interval: int = 1, reestimate: int = 50) -> None:
        super().__init__(reestimate=reestimate)
        if not 0 <= start < 1 or interval < 1:
            raise InputError(
                f"average.start must be at least 0 and below 1, interval at least 1, not {start} and {interval}"
            )
        self.start, self.interval = start, interval

    def share(self, step: int) -> float:
        """Return 1, 1/2, 1/3, ... in the averaged steps, 0 in the others."""
        number, between = divmod(step - self._first, self.interval)
        return 1 / (number + 1) if number >= 0 and not between else 0.0

    def exists(self, step: int) -> bool:
        """Tell whether the averaged part has begun."""
        return step > self._first

    @property
    def _first(self) -> int:
        return min(round(self.start * self.steps), self.steps - 1)


@AVERAGES.register("swad")
class SWAD(Average):
    r"""SWAD: the mean of the weights of every step from where the validation loss stops falling to where it rises.

    Every `evaluate_every` steps the loss $l_i$ on the source's validation images is measured. The average starts with
    the first $s$ for which $l_s$ is the least of $l_s, \dots, l_{s + N_s - 1}$, and ends before the first $N_e$ losses
    in a row that are all above $r$ times the mean of those $N_s$. A measurement stands for the steps since the one
    before it, as in the released code. Without such an $s$ it is the mean of the last such steps.

    Args:
        optimum_patience: $N_s$.
        overfit_patience: $N_e$.
        tolerance: $r$.
        reestimate: source batches on which running statistics are estimated for the averaged weights.
    """

    measure: Measure

    def __init__(
        self, *, optimum_patience: int = 3, overfit_patience: int = 6, tolerance: float = 1.3, reestimate: int = 50
    ) -> None:
        super().__init__(reestimate=reestimate)
        if min(optimum_patience, overfit_patience) < 1 or tolerance <= 0:
            raise InputError("average: optimum_patience and overfit_patience must be at least 1, tolerance above 0")
        self.optimum_patience, self.overfit_patience, self.tolerance = optimum_patience, overfit_patience, tolerance
        self._losses: list[float] = []
        self._start = self._end = -1  # indices of losses; -1 where not known yet
        self._limit = 0.0
        self._last = 0  # step of the last measurement
        self._pending: list[Segment] = []  # the last ones
        self._total: Segment | None = None  # of those that are surely part of the average

    def share(self, step: int) -> float:
        """Return 1, 1/2, 1/3, ... in the steps since the last measurement."""
        return 1 / (step % self.every + 1)

    def exists(self, step: int) -> bool:
        """Tell whether something was measured."""
        return step >= self._last > 0

    def consider(self, model: nn.Module, step: int) -> dict[str, float] | None:
        """Measure the validation loss, and keep the mean of the weights since the last time."""
        if self._end >= 0:
            return None
        loss = self.measure(model)
        self._losses.append(loss)
        self._pending.append((step - self._last, [weight.clone() for weight in self.weights]))
        self._last = step
        if self._start < 0:
            self._find_start()
        else:
            self._find_end()
        return {"validation_loss": loss, "averaging": float(self._start >= 0 and self._end < 0)}

    def _find_start(self) -> None:
        window = self._losses[-self.optimum_patience :]
        if len(window) == self.optimum_patience and window[0] == min(window):
            self._start = len(self._losses) - self.optimum_patience
            self._limit = self.tolerance * sum(window) / len(window)
        self._pending = self._pending[-self.optimum_patience :]

    def _find_end(self) -> None:
        first = len(self._losses) - self.overfit_patience
        if first >= self._start and min(self._losses[first:]) > self._limit:
            self._end = first
            self._pending = self._pending[: len(self._pending) - self.overfit_patience]
        while len(self._pending) > self.overfit_patience or (self._end >= 0 and self._pending):
            self._total = _join([self._pending.pop(0)], self._total)

    def result(self) -> list[Tensor]:
        """Return the average so far; without a start the mean of the last steps."""
        if self._start < 0 and self._pending:
            return self._pending[-1][1]
        joined = _join(self._pending, self._total)
        return self.weights if joined is None else joined[1]

    def state_dict(self) -> dict[str, Any]:
        """Return the running mean, what was measured, and the segments."""
        return super().state_dict() | {name: getattr(self, name) for name in _MEASURED}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        for name in _MEASURED:
            setattr(self, name, state[name])
        self._losses, device = list(self._losses), self._move.device
        self._pending = [(count, [weight.to(device) for weight in weights]) for count, weights in self._pending]
        if self._total is not None:
            self._total = self._total[0], [weight.to(device) for weight in self._total[1]]


def _join(segments: list[Segment], total: Segment | None) -> Segment | None:
    """Return number and mean of all steps in segments and a total."""
    for count, weights in segments:
        if total is None:
            total = count, weights
        else:
            number = total[0] + count
            total = number, list(torch._foreach_lerp(total[1], weights, count / number))
    return total


def create_average(config: RunConfig, measure: Callable[[], Measure]) -> Average | None:
    """Return the average of a run, `None` if it has none; only SWAD takes the measure of the validation loss."""
    if config.average.name == "none":
        return None
    average = AVERAGES[config.average.name](**config.average.args)
    if isinstance(average, SWAD):
        average.measure = measure()
    return average
