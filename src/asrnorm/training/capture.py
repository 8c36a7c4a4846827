"""Whole training steps as a CUDA graph, replayed in windows of many steps.

Batch, augmentation, loss, gradients, learning rates and optimizer are inside the graph. The host draws for a window of
steps at once, uploads the draws as one table, and replays the graph once per step; the graph itself counts the row of
the table that it reads.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from asrnorm.core.config import RunConfig
from asrnorm.core.cuda_graph import Graph, capture
from asrnorm.methods import Batch, Method
from asrnorm.models import Classifier
from asrnorm.training.average import Average
from asrnorm.training.batches import Batches
from asrnorm.training.optim import copy_rates, draw_rates

_METHOD = "method."
_MOST_STEPS = 128  # in a window
_FIRST_STEPS = 8  # in the window after the device was idle, as after a row of the log; then twice as many each time
_SECONDS = 0.2  # duration of a window: two may be in progress when an interruption is noticed


class CapturedSteps:
    """The steps of a run, captured with the current pool and again whenever it has grown; `loss_sum` adds up losses."""

    def __init__(
        self,
        config: RunConfig,
        model: Classifier,
        method: Method,
        optimizer: torch.optim.Optimizer,
        batches: Batches,
        loss_sum: Tensor,
        average: Average | None = None,
    ) -> None:
        self._config, self._model, self._method, self._optimizer = config, model, method, optimizer
        self._batches, self._loss_sum, self._average = batches, loss_sum, average
        self._failed = False
        self._graph: Graph[Batch] | None = None
        self._labels: Tensor | None = None

    def run(
        self, step: int, stop: int, update: Callable[[Batch], Tensor], seed: Callable[[int], None]
    ) -> tuple[Batch, int] | None:
        """Take steps up to `stop`, up to the next event, or as many as fit in a window.

        `update` takes a training step on a batch, moves the `average` of the weights, and returns the loss. `seed`
        seeds the global generators for a step; it is called before each if layers draw from them. Neither is kept: both
        belong to the trainer, and a reference back to it would let the memory of a run wait for a garbage collection.
        Waits for the device only if it is two windows behind. Returns the last batch and the number of steps, or `None`
        if steps cannot be captured.
        """
        if self._failed:
            return None
        if self._graph is None or self._labels is not self._batches.pool.labels:  # a pool that has grown has new labels
            self.forget()
            self._graph = self._capture(step, update, seed)
            self._labels = self._batches.pool.labels
            self._failed = self._graph is None
        count = self._count_until_event(step, stop)
        return None if self._graph is None else self._replay(self._graph, step, count, seed)

    def forget(self) -> None:
        """Release the graph and its memory, as after the optimizer's state was replaced."""
        self._graph = self._labels = None

    def _count_until_event(self, step: int, stop: int) -> int:
        """Number of steps up to the next row, checkpoint, evaluation or grow phase."""
        config = self._config
        periods = (config.log_every, config.lambda_every, config.evaluate_every, config.checkpoint_every)
        count = min(stop - step, _MOST_STEPS, *(every - step % every for every in periods if every))
        return next((ahead for ahead in range(1, count) if self._method.is_growing(step + ahead)), count)

    def _capture(
        self, step: int, update: Callable[[Batch], Tensor], seed: Callable[[int], None]
    ) -> Graph[Batch] | None:
        device = self._loss_sum.device
        drawn = self._draw(step)
        self._table = DrawTable(drawn, _MOST_STEPS, device)
        self._table.write([drawn] * 2)  # `capture` calls the function twice before the capture
        self._index = torch.zeros(1, dtype=torch.int64, device=device)
        self._seconds = _SECONDS / _FIRST_STEPS  # of a step
        self._windows: list[tuple[torch.cuda.Event, torch.cuda.Event, int]] = []
        state = [value for values in self._optimizer.state.values() for value in values.values()]
        networks = (self._model, *self._method.trained.values())
        weights = [value for network in networks for value in (*network.parameters(), *network.buffers())]
        changed = [self._index, *weights, *state, self._loss_sum]
        changed += self._average.tensors if self._average is not None else []
        seed(step)
        graph = capture(partial(self._take_step, update), device, changed=changed, what="the training step")
        self._layers_draw = torch.cuda.default_generators[device.index].get_offset() > 0
        seed(step)  # as if nothing had been drawn yet, in case the step is not captured after all
        return graph

    def _draw(self, step: int) -> dict[str, Tensor]:
        """All that a step draws; the method's part has the prefix `method.`."""
        own = self._method.draw(step, self._batches.size)
        drawn = self._batches.draw(step) | {f"{_METHOD}{name}": value for name, value in own.items()}
        drawn["rates"] = draw_rates(self._optimizer, self._config.optim, step, self._config.steps)
        if self._average is not None:
            drawn["average"] = torch.tensor(self._average.share(step), dtype=torch.float64)
        return drawn

    def _take_step(self, update: Callable[[Batch], Tensor]) -> Batch:
        """Take the step drawn in the next row of the table, and return its batch."""
        drawn = self._table.read(self._index)
        self._index.add_(1)
        own = {name.removeprefix(_METHOD): value for name, value in drawn.items() if name.startswith(_METHOD)}
        batch = self._batches.make(drawn)._replace(drawn=own)
        copy_rates(self._optimizer, drawn["rates"])
        if self._average is not None:
            self._average.set_share(drawn["average"])
        self._loss_sum += update(batch)
        return batch

    def _replay(self, graph: Graph[Batch], step: int, count: int, seed: Callable[[int], None]) -> tuple[Batch, int]:
        """Take up to `count` steps, as many as fit in a window; return the last batch and their number."""
        self._wait()
        is_idle = not self._windows or self._windows[-1][1].query()
        most = _FIRST_STEPS if is_idle else 2 * self._windows[-1][2]
        count = max(1, min(count, most, _MOST_STEPS, round(_SECONDS / self._seconds)))
        self._table.write([self._draw(number) for number in range(step, step + count)])
        self._index.zero_()
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        stream = torch.cuda.current_stream(self._index.device)
        start.record(stream)
        for number in range(step, step + count):
            if self._layers_draw:
                seed(number)
            graph.replay()
        stop.record(stream)
        self._windows.append((start, stop, count))
        return graph.output, count

    def _wait(self) -> None:
        if len(self._windows) == 2:
            start, stop, count = self._windows.pop(0)
            stop.synchronize()
            self._seconds = max(start.elapsed_time(stop) / 1000 / count, 1e-6)


class DrawTable:
    """Rows of named tensors shaped as those of `example`, packed as bytes: uploaded at once, read row by row."""

    def __init__(self, example: Mapping[str, Tensor], rows: int, device: torch.device) -> None:
        # The widest numbers come first, so that all are aligned.
        self._fields = dict(sorted(example.items(), key=lambda item: -item[1].element_size()))
        self._sizes = [value.nbytes for value in self._fields.values()]
        self._table = torch.zeros((rows, sum(self._sizes)), dtype=torch.uint8, device=device)

    def write(self, rows: list[dict[str, Tensor]]) -> None:
        """Fill the table from its first row on, without waiting for the copy to the device."""
        stacked = [torch.stack([row[name] for row in rows]) for name in self._fields]
        packed = torch.cat([values.reshape(len(rows), -1).view(torch.uint8) for values in stacked], 1)
        self._table[: len(rows)].copy_(packed.pin_memory() if self._table.is_cuda else packed, non_blocking=True)

    def read(self, index: Tensor) -> dict[str, Tensor]:
        """Return the row of an index, an int64 tensor of one element on the device, which the host does not read."""
        parts = self._table.index_select(0, index)[0].split(self._sizes)
        read = zip(self._fields.items(), parts, strict=True)
        return {name: part.view(value.dtype).view(value.shape) for (name, value), part in read}
