"""A user's own training loop with one of everything, plain and through `asrnorm.capture`."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

import asrnorm

STEPS = 20


def make_model(device, dropout=0.0):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        asrnorm.ASRNorm2d(8),
        nn.Dropout(dropout),
        nn.Flatten(),
        nn.Linear(8 * 64, 4),
    )
    return model.to(device)


def make_batches(device, sizes=(8,)):
    generator = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        count = sizes[step % len(sizes)]
        images = torch.rand(count, 3, 8, 8, generator=generator).to(device)
        yield {"images": images, "target": (torch.randint(4, (count,), generator=generator).to(device), "hard")}


class Loop:
    """A model, its optimizer, and the step that trains it; `clip`, `scale` and `autocast` are optional parts."""

    def __init__(self, make_optimizer, device="cpu", *, dropout=0.0, clip=None, scale=None, autocast=None):
        self.device = device
        self.model = make_model(device, dropout)
        self.optimizer = make_optimizer(self.model.parameters())
        self.clip, self.autocast = clip, autocast
        self.scaler = None if scale is None else torch.amp.GradScaler(device, init_scale=scale, growth_interval=3)

    def step(self, batch):
        labels, _ = batch["target"]
        self.optimizer.zero_grad()
        with torch.autocast(self.device, self.autocast, enabled=self.autocast is not None):
            logits = self.model(batch["images"])
        loss = F.cross_entropy(logits.float(), labels)
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        if self.clip is not None:
            if self.scaler is not None:
                self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return {"loss": loss, "logits": logits}

    def capture(self):
        """Return the step through `asrnorm.capture`, which must change nothing."""
        before = copy.deepcopy([self.model.state_dict(), self.optimizer.state_dict()])
        random = torch.random.get_rng_state()
        step = asrnorm.capture(self.step, next(make_batches(self.device)), model=self.model, optimizer=self.optimizer)
        assert_same(before, [self.model.state_dict(), self.optimizer.state_dict()])
        assert torch.equal(random, torch.random.get_rng_state())
        return step

    def train(self, step, sizes=(8,), scheduler=None):
        """Train; return the losses and all that is left behind."""
        torch.manual_seed(2)
        results = []
        for batch in make_batches(self.device, sizes):
            results.append(step(batch))
            if scheduler is not None:
                scheduler.step()
        state = [state for _, state in sorted(self.optimizer.state_dict()["state"].items())]
        gradients = [parameter.grad for parameter in self.model.parameters()]
        scale = {} if self.scaler is None else self.scaler.state_dict()
        return [results, self.model.state_dict(), state, gradients, scale]


def leaves(value):
    return torch.utils._pytree.tree_leaves(value)


def assert_same(one, other):
    """The same values, to the bit."""
    for left, right in zip(leaves(one), leaves(other), strict=True):
        if isinstance(left, torch.Tensor):
            torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True)
        else:
            assert left == right
