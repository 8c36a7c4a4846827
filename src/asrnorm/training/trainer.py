"""The training loop: grow where the method says so, take a step; log, evaluate and checkpoint on schedule."""

import operator
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from asrnorm.core.config import RunConfig
from asrnorm.core.device_memory import find_fitting
from asrnorm.core.distributed import World
from asrnorm.core.errors import (
    AsrnormError,
    DeviceMemoryError,
    DivergenceError,
    InputError,
    InterruptedRunError,
    first_line,
)
from asrnorm.core.precision import autocast, products, weight_dtype
from asrnorm.core.schedule import rate_factor
from asrnorm.data.pool import Pool
from asrnorm.methods import Batch, Method, keyed_generator
from asrnorm.methods.base import is_capturable
from asrnorm.models import Classifier
from asrnorm.norms import DomainMixedNorm
from asrnorm.training.assembly import from_first, synchronize
from asrnorm.training.average import Average
from asrnorm.training.batches import Batches
from asrnorm.training.capture import CapturedSteps
from asrnorm.training.checkpoint import CheckpointStore, Loaded
from asrnorm.training.log import Interruption, PhaseInterrupted, RunLog, RunProgress, reporting_progress
from asrnorm.training.optim import create_optimizer, load_optimizer, optimizer_state, set_rate
from asrnorm.training.selection import Selector

Row = dict[str, Any]

_ADVICE = "the last good checkpoint is kept, try a lower optim.lr"


class Trainer:
    """A model, a method and a pool on one device, and the current step.

    The last step, `stop`, is earlier than the schedule's if a first pass has selected an earlier one. Without a
    `selector` the last weights are reported; with an `average`, that of the weights is selected and reported.

    Attributes:
        step: number of updates so far.
        elapsed: seconds of training, those before a resume included.
        stop_requested: a signal arrived during the last step.
    """

    def __init__(
        self,
        config: RunConfig,
        model: Classifier,
        method: Method,
        pool: Pool,
        *,
        world: World,
        stop: int,
        selector: Selector | None = None,
        average: Average | None = None,
    ) -> None:
        self.config, self.model, self.method, self.pool = config, model, method, pool
        self.world, self.stop, self.selector = world, stop, selector
        self.device = pool.device
        self.batches = Batches(
            pool,
            batch_size=config.batch_size,
            seed=config.seed,
            shuffle=config.shuffle,
            augment=config.augment,
            views=method.views,
            shared=method.shared,
            fold=config.fold,
            world=world,
            dtype=weight_dtype(config.precision),
        )
        self.average = average
        if average is not None:
            average.attach(model, config)
        size = self.batches.augmentation.output_size(pool.image_size)
        method.build(model, torch.zeros((1, 3, *size), device=self.device))
        method.total_steps, method.fetch = config.steps, self.batches.fetch
        self._networks = (model, *method.trained.values())
        for network in self._networks:
            synchronize(network, world)
        self.optimizer = create_optimizer(model, config.optim, beside=tuple(method.trained.values()))
        self._domain_norms = [layer for layer in model.modules() if isinstance(layer, DomainMixedNorm)]
        self._trained = [p for network in self._networks for p in network.parameters() if p.requires_grad]
        self.step, self.elapsed, self.stop_requested = 0, 0.0, False
        self._started = time.monotonic()
        # On a CPU the loss is checked before every update. On a GPU that would mean waiting for the device: there it is
        # checked now and then, and the steps that led to a bad loss are repeated one at a time.
        self._careful_until = stop if self.device.type == "cpu" else 0
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)
        self._num_losses = 0
        self._global_generators = [torch.default_generator]  # `torch.manual_seed` takes a millisecond
        if self.device.type == "cuda":
            index = torch.cuda.current_device() if self.device.index is None else self.device.index
            self._global_generators.append(torch.cuda.default_generators[index])
        method.capture = config.capture and self.device.type == "cuda"
        self._captured: CapturedSteps | None = None
        if method.capture and world.size == 1 and is_capturable(method) and pool.is_in_memory:
            parts = (config, model, method, self.optimizer, self.batches)
            self._captured = CapturedSteps(*parts, self._loss_sum, average)

    def fit(self, store: CheckpointStore, log: Callable[[int], RunLog], label: str) -> None:
        """Train up to `stop`, from the last checkpoint if there is one; errors keep the last checkpoint."""
        if not self.resume(store):
            self._save(store)
        self.model.train()
        with (
            products(self.config.precision, self.device),
            self._explaining_memory(),
            log(self.step) as rows,
            RunProgress(label, self.stop, self.step, shown=self.world.rank == 0) as progress,
            Interruption() as interruption,
            reporting_progress(self.method, progress, interruption),
        ):
            while self.step < self.stop:
                try:
                    grow_log, batch, rate = self._advance()
                except PhaseInterrupted:
                    if not self._is_diverged():
                        rows.sync()
                        self._save(store)
                    raise self._interrupted() from None
                stopping = interruption.is_agreed(self.world, self.step, self.device)
                after_grow = grow_log is not None and self.method.checkpoint_after_grow
                # Several processes, whose clocks differ, keep to the schedule.
                overdue = self.world.size == 1 and self._has_row() and store.is_old
                saving = after_grow or overdue or stopping or self._is_due(self.config.checkpoint_every)
                if (saving or self._has_row()) and self._is_diverged():
                    self._go_back(store, rows)
                    continue
                row = self._describe(grow_log, batch, rate)
                if row:
                    rows.write(row)
                progress.advance(self.step, row)
                if saving:
                    rows.sync()
                    self._save(store)
                if stopping and self.step < self.stop:
                    raise self._interrupted()
            self.stop_requested = interruption.is_agreed(self.world, 0, self.device)
        self._clock()

    def update(self, batch: Batch) -> Tensor:
        """Take one training step and return its loss, this process's share of the global mean.

        All work of a step on the device happens here, on tensors of fixed shapes, and nothing is read back: on a GPU it
        is captured as a graph.
        """
        share = len(batch.labels) / batch.global_size
        for layer in self._domain_norms:
            layer.domain = 0 if batch.domains is None else batch.domains
        with self.autocast():
            # Weighted before the backward pass: batch statistics carry gradients from one process to the others.
            loss = self.method.loss(self.model, batch) * share
        if self.step < self._careful_until:
            self._require_finite(loss, batch)
        loss.backward()
        self.world.sum_gradients(self._trained)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update()
        return loss.detach()

    def adopt_average(self) -> None:
        """Give the model the averaged weights for good, where there are any."""
        if self.average is not None and self.average.exists(self.step):
            with products(self.config.precision, self.device), self.autocast():
                self.average.adopt(self.model, self._recent_images(self.average.reestimate))

    def autocast(self) -> AbstractContextManager[object]:
        """Return the precision context in which the model is called."""
        return autocast(self.config.precision, self.device)

    def resume(self, store: CheckpointStore) -> bool:
        """Restore the last checkpoint, the same on every process; `False` if there is none."""
        loaded = store.load(stop=self.stop) if self.world.rank == 0 else None
        name = from_first(loaded.name if loaded else None, self.world)
        if name is None:
            return False
        if loaded is None:
            loaded = store.load(stop=self.stop, only=name)
            assert loaded is not None, "the first process has just read it"
        try:
            self._restore(loaded)
        except (AsrnormError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # a forged or foreign state fails anywhere in torch
            raise InputError(
                f"{name}: not a checkpoint of this run ({first_line(error)}); start over with --fresh"
            ) from error
        return True

    def _restore(self, loaded: Loaded) -> None:
        state = loaded.state
        if state["step"] > self.stop:
            raise InputError(f"{loaded.name}: of step {state['step']:,}, after the last one, {self.stop:,}")
        if not 0 <= state["elapsed"] < float("inf"):
            raise InputError(f"{loaded.name}: damaged, {state['elapsed']} seconds")
        self.step, self.elapsed = state["step"], float(state["elapsed"])
        self._started = time.monotonic()
        self.model.load_state_dict(state["model"])
        load_optimizer(self.optimizer, state["optimizer"])
        if self._captured is not None:
            self._captured.forget()
        self.pool.restore(loaded.parts)
        self.method.load_state_dict(state["method"])
        for module in self.method.modules().values():
            module.to(self.device, weight_dtype(self.config.precision))
        if self.selector is not None:
            self.selector.load_state_dict(state["selection"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self._loss_sum.copy_(state["loss_sum"] * (self.world.rank == 0))  # the sum over all processes
        self._num_losses = max(0, operator.index(state["num_losses"]))

    def _save(self, store: CheckpointStore) -> None:
        loss_sum = self.world.sum(self._loss_sum)
        if self.world.rank != 0:
            return
        state = {
            "step": self.step,
            "elapsed": self._clock(),
            "model": self.model.state_dict(),
            "optimizer": optimizer_state(self.optimizer),
            "method": self.method.state_dict(),
            "selection": self.selector.state_dict() if self.selector is not None else {},
            "loss_sum": loss_sum.cpu(),
            "num_losses": self._num_losses,
        }
        if self.average is not None:
            state["average"] = self.average.state_dict()
        store.save(state, self.pool)

    def _clock(self) -> float:
        now = time.monotonic()
        self.elapsed += now - self._started
        self._started = now
        return self.elapsed

    def _advance(self) -> tuple[Row | None, Batch, float]:
        """Take a step, or captured ones up to the next event; return the grow phase's log, the last batch, its rate."""
        self._seed_layers(self.step)
        grow_log: Row | None = None
        if self.method.is_growing(self.step):
            with self.autocast():
                grow_log = dict(self.method.grow(self.model, self.pool, self.step))
            self.model.train()
            if self._domain_norms and self.pool.parts:
                raise InputError("norm 'dson' needs the domain of every image, and generated images have none")
        # After a grow phase a single step, which has a row of its own and maybe a checkpoint.
        stop = self.stop if grow_log is None else self.step + 1
        captured = self._captured if self.step >= self._careful_until else None
        window = captured and captured.run(self.step, stop, self.update, self._seed_layers)
        batch, count = window or (self._take_step(), 1)
        self._num_losses += count
        self.step += count
        rate = self.config.optim.lr * rate_factor(self.config.optim, self.step - 1, self.config.steps)
        return grow_log, batch, rate

    def _take_step(self) -> Batch:
        batch = self.batches.fetch(self.step)
        set_rate(self.optimizer, self.config.optim, self.step, self.config.steps)
        if self.average is not None:
            self.average.set_share(self.average.share(self.step))
        self._loss_sum += self.update(batch)
        return batch

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Within it, the model has the averaged weights, where there are any."""
        if self.average is None or not self.average.exists(self.step):
            yield
            return
        images = self._recent_images(self.average.reestimate)
        with self.autocast(), self.average.applied(self.model, images):
            yield

    def _recent_images(self, count: int) -> Iterator[Tensor]:
        """The images of the last steps, as training sees them."""
        for step in range(max(0, self.step - count), self.step):
            batch = self.batches.fetch(step)
            yield torch.cat(batch.views) if batch.views else batch.images

    def _seed_layers(self, step: int) -> None:
        # Layers that draw from the global generators, such as dropout, draw the same in a resumed run.
        seed = keyed_generator(self.config.seed, step, "layers", self.world.rank).initial_seed()
        for generator in self._global_generators:
            generator.manual_seed(seed)

    def _is_due(self, every: int) -> bool:
        return every > 0 and (self.step % every == 0 or self.step == self.stop)

    def _has_row(self) -> bool:
        config = self.config
        return any(map(self._is_due, (config.log_every, config.lambda_every, config.evaluate_every)))

    def _describe(self, grow_log: Row | None, batch: Batch, rate: float) -> Row:
        """Return the row of the last step, empty if none is due."""
        row: Row = {} if grow_log is None else {"grow": grow_log}
        if self._is_due(self.config.log_every):
            row |= self._describe_training(batch, rate)
        if self._is_due(self.config.lambda_every):
            from asrnorm.evaluation.learned_statistics import collect_lambdas

            if lambdas := collect_lambdas(self.model):
                row["lambdas"] = lambdas
        if self._is_due(self.config.evaluate_every):
            if self.average is not None and (found := self.average.consider(self.model, self.step)):
                row["average"] = found
            if self.selector is not None:
                with self._averaged():
                    row["selection"] = self.selector.consider(self.model, self.step)
            self.model.train()
        return {"step": self.step, **row} if row else {}

    def _describe_training(self, batch: Batch, rate: float) -> Row:
        """Mean loss since the last row; accuracy on the batch with the model in evaluation mode."""
        loss = float(self.world.sum(self._loss_sum)) / self._num_losses
        self._loss_sum.zero_()
        self._num_losses = 0
        self.model.eval()
        with torch.no_grad(), self.autocast():
            correct = (self.model(batch.images).argmax(1) == batch.labels).sum()
        self.model.train()
        row = {"loss": loss, "accuracy": int(self.world.sum(correct)) / batch.global_size, "lr": rate}
        return {**row, "pool": len(self.pool), "seconds": round(self._clock(), 3)}

    @contextmanager
    def _explaining_memory(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError:
            raise DeviceMemoryError(self._describe_memory()) from None

    def _describe_memory(self) -> str:
        """Return one line with the batch that would have fit; the run ends, so that the attempts may leave a mess."""
        said = f"step {self.step + 1:,}: {self.device} has not enough memory for batch_size={self.config.batch_size}"
        kept = "the last checkpoint is kept"
        if self.world.size > 1:
            return f"{said} in {self.world.size} processes; use more of them, or a smaller batch_size; {kept}"

        def attempt(size: int) -> None:
            self.optimizer.zero_grad(set_to_none=True)
            batch = self.batches.fetch(self.step)
            rows = None if batch.rows is None else batch.rows[:size]
            part = Batch(batch.images[:size], batch.labels[:size], step=batch.step, rows=rows)
            with self.autocast():
                self.method.loss(self.model, part).backward()

        fitting = find_fitting(self.config.batch_size, attempt)
        advice = f"{fitting} fit: set batch_size={fitting}, in another folder" if fitting else "not even one image fits"
        return f"{said}; {advice}; {kept}"

    def _interrupted(self) -> InterruptedRunError:
        return InterruptedRunError(f"interrupted at step {self.step:,} of {self.stop:,}; start the run again to resume")

    def _is_diverged(self) -> bool:
        bad = any(map(find_not_finite, self._networks)) or not bool(torch.isfinite(self._loss_sum))
        return bool(self.world.sum(torch.tensor(int(bad), device=self.device)))

    def _require_finite(self, loss: Tensor, batch: Batch) -> None:
        if not int(self.world.sum((~torch.isfinite(loss.detach())).int())):
            return
        with self.autocast():
            origin = describe_origin(self.model, batch, lambda: self.method.loss(self.model, batch))
        raise DivergenceError(f"step {self.step + 1:,}: the loss is {float(loss.detach())}; {origin}; {_ADVICE}")

    def _go_back(self, store: CheckpointStore, rows: RunLog) -> None:
        """Return to the last checkpoint, and check every loss from there to the current step."""
        if self.step <= self._careful_until:
            what = find_not_finite(self.model) or "the loss is"
            raise DivergenceError(f"step {self.step:,}: {what} not finite after it; {_ADVICE}")
        self._careful_until = self.step
        self.resume(store)
        rows.cut(self.step)
        self.model.train()


def find_not_finite(model: nn.Module) -> str | None:
    """Return words for the first parameter or buffer of a model that is not finite, `None` if all are."""
    tensors = [(f"the weights {name!r} are", parameter.detach()) for name, parameter in model.named_parameters()]
    tensors += [(f"the running statistics {name!r} are", buffer) for name, buffer in model.named_buffers()]
    named = [(words, tensor) for words, tensor in tensors if tensor.is_floating_point()]
    # All in a few launches with one result: a sum of magnitudes is finite only if each of them is.
    if not named or bool(torch.isfinite(get_total_norm([tensor for _, tensor in named], 1.0))):
        return None
    return next((words for words, tensor in named if not _is_finite(tensor)), None)  # the sum alone may overflow


def describe_origin(model: nn.Module, batch: Batch, compute: Callable[[], object]) -> str:
    """Return in words what is not finite first: images, weights, or the output of a layer while `compute` runs."""
    if not _is_finite(batch.images):
        return "the images of the batch are not finite"
    if before := find_not_finite(model):
        return f"{before} not finite since the step before"
    names = {module: name for name, module in model.named_modules() if name}
    not_finite: list[str] = []

    def check(module: nn.Module, _: tuple[Any, ...], output: Any) -> None:
        if isinstance(output, Tensor) and not _is_finite(output):
            not_finite.append(f"{names[module]!r} ({type(module).__name__})")

    handles = [module.register_forward_hook(check) for module in names]
    try:
        compute()
    finally:
        for handle in handles:
            handle.remove()
    if not_finite:
        return f"the output of layer {not_finite[0]} is the first that is not finite"
    return "every layer is finite, only the loss is not"


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
