"""Whole training steps as a CUDA graph: what a step draws is data on the device, and a replay is all a step takes.

Batch, augmentation, losses, gradients, rates and optimizer are inside. The host draws for a window of steps at once,
uploads that, and replays the graph as often; the graph itself counts which row of the window it is at.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from asrnorm.core.config import RunConfig
from asrnorm.core.cuda_graph import Graph, capture
from asrnorm.methods import Batch, Method
from asrnorm.models import Classifier
from asrnorm.training.batches import Batches, DrawTable
from asrnorm.training.optim import copy_rates, draw_rates

Draw = Callable[[int], dict[str, Tensor]]
Do = Callable[[Mapping[str, Tensor]], Batch]

_METHOD = "method."
_MOST_STEPS = 128  # in a window
_FIRST_STEPS = 8  # in one that the device waits for, as after a row of the log; then twice as many each time
_SECONDS = 0.2  # that a window should take: two may be under way when an interruption is noticed


class CapturedSteps:
    """The steps of a run, captured with the pool as it is and again whenever it has grown.

    Args:
        config: of the run.
        model: in training mode when `run` is called.
        method: one that is `capturable`.
        optimizer: from `create_optimizer`, on a CUDA device.
        batches: of a pool in memory.
        update: does a step on a batch and returns its loss.
        loss_sum: the losses are added to it.
        seed: seeds the global generators for a step; called where layers draw from them.
    """

    def __init__(
        self,
        config: RunConfig,
        model: Classifier,
        method: Method,
        optimizer: torch.optim.Optimizer,
        batches: Batches,
        update: Callable[[Batch], Tensor],
        loss_sum: Tensor,
        seed: Callable[[int], None],
    ) -> None:
        self._config, self._model, self._method, self._optimizer = config, model, method, optimizer
        self._batches, self._update, self._loss_sum, self._seed = batches, update, loss_sum, seed
        self._refused = False
        self._step: CapturedStep | None = None
        self._labels: Tensor | None = None

    def run(self, step: int, stop: int) -> tuple[Batch, int] | None:
        """Do steps up to `stop`, or to the next that something else follows, or as many as a window holds.

        Returns:
            The batch of the last and how many they were; `None` where steps cannot be captured.
        """
        if self._refused:
            return None
        # A pool that has grown has other labels.
        if self._step is None or self._labels is not self._batches.pool.labels:
            self.forget()
            state = [value for values in self._optimizer.state.values() for value in values.values()]
            changed = [*self._model.parameters(), *self._model.buffers(), *state, self._loss_sum]
            self._step = CapturedStep.begin(self._draw, self._do, step, changed=changed, seed=self._seed)
            self._labels = self._batches.pool.labels
            self._refused = self._step is None
        return None if self._step is None else self._step.run(step, self._until_event(step, stop))

    def _until_event(self, step: int, stop: int) -> int:
        """Steps up to the next row, checkpoint, evaluation or growing."""
        config = self._config
        periods = (config.log_every, config.lambda_every, config.evaluate_every, config.checkpoint_every)
        count = min(stop - step, _MOST_STEPS, *(every - step % every for every in periods if every))
        return next((ahead for ahead in range(1, count) if self._method.is_growing(step + ahead)), count)

    def forget(self) -> None:
        """Let go of the graph and its memory, as when the optimizer's state has been replaced."""
        self._step = self._labels = None

    def _draw(self, step: int) -> dict[str, Tensor]:
        """All that a step draws; what the method does is under `method.`."""
        own = self._method.draw(step, self._batches.size)
        return {
            **self._batches.draw(step),
            **{f"{_METHOD}{name}": value for name, value in own.items()},
            "rates": draw_rates(self._optimizer, self._config.optim, step, self._config.steps),
        }

    def _do(self, drawn: Mapping[str, Tensor]) -> Batch:
        """The step that was drawn; its batch."""
        own = {name.removeprefix(_METHOD): value for name, value in drawn.items() if name.startswith(_METHOD)}
        batch = self._batches.make(drawn)._replace(drawn=own)
        copy_rates(self._optimizer, drawn["rates"])
        self._loss_sum += self._update(batch)
        return batch


class CapturedStep:
    """One step as a graph, replayed in windows; `begin` makes it."""

    def __init__(self, graph: Graph[Batch], draw: Draw, table: DrawTable, index: Tensor) -> None:
        self._graph, self._draw, self._table, self._index = graph, draw, table, index
        self._seed: Callable[[int], None] | None = None
        self._seconds = _SECONDS / _FIRST_STEPS
        self._windows: list[tuple[torch.cuda.Event, torch.cuda.Event, int]] = []

    @classmethod
    def begin(
        cls,
        draw: Draw,
        do: Do,
        step: int,
        *,
        changed: Sequence[Tensor],
        seed: Callable[[int], None],
    ) -> "CapturedStep | None":
        """Capture a step; `None` where that cannot be done, which the log then says.

        Args:
            draw: returns what a step draws, tensors on the CPU.
            do: does the step that was drawn, on tensors on the device, and returns its batch.
            step: the one to capture with.
            changed: all tensors that a step changes.
            seed: seeds the global generators for a step; called where the layers draw from them.
        """
        device = changed[0].device
        drawn = draw(step)
        table = DrawTable(drawn, _MOST_STEPS, device)
        table.write([drawn] * 2)  # as many as the calls before the capture read
        index = torch.zeros(1, dtype=torch.int64, device=device)

        def whole() -> Batch:
            row = table.read(index)
            index.add_(1)
            return do(row)

        seed(step)
        generator = torch.cuda.default_generators[device.index]
        graph = capture(whole, device, changed=[index, *changed], what="the training step")
        layers_draw = generator.get_offset() > 0
        seed(step)  # as if nothing had been drawn yet, for a step that is not captured after all
        if graph is None:
            return None
        captured = cls(graph, draw, table, index)
        captured._seed = seed if layers_draw else None
        return captured

    def run(self, step: int, count: int) -> tuple[Batch, int]:
        """Do up to `count` steps, as many as a window holds; return the batch of the last, and how many.

        The device is not waited for, but where it is two windows behind.
        """
        self._wait()
        is_idle = not self._windows or self._windows[-1][1].query()
        most = _FIRST_STEPS if is_idle else 2 * self._windows[-1][2]
        count = max(1, min(count, most, len(self._table), round(_SECONDS / self._seconds)))
        self._table.write([self._draw(number) for number in range(step, step + count)])
        self._index.zero_()
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        stream = torch.cuda.current_stream(self._index.device)
        start.record(stream)
        for number in range(step, step + count):
            if self._seed is not None:
                self._seed(number)
            self._graph.replay()
        stop.record(stream)
        self._windows.append((start, stop, count))
        return self._graph.output, count

    def _wait(self) -> None:
        if len(self._windows) < 2:
            return
        start, stop, count = self._windows.pop(0)
        stop.synchronize()
        self._seconds = max(start.elapsed_time(stop) / 1000 / count, 1e-6)
