"""Values, derivatives and running statistics of every norm against an independent float64 computation in NumPy."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from asrnorm import list_norms
from helpers import derivative, numpy_norms
from helpers.norm_case import OPTIONED, PLAIN, NormCase, arrays, asr_options, draw_input, reference

VALUE, FIRST, SECOND = 1e-12, 1e-9, 1e-5

SHAPES = [
    (3, 1, 4, 5),  # one channel: every hidden size at its floor
    (3, 6, 5, 3),  # fewer than 16 channels, not square
    (3, 24, 3, 4),
    (3, 24, 7),
    (3, 5, 2, 3, 4),
    (2, 64, 2, 3),  # 32 groups of two, four whole key groups
    (1, 8, 4, 3),  # a batch of one
    (2, 272, 2, 2),  # 17 key groups: ILM's hidden size by its other rule
]
CASES = [
    *(pytest.param(case, shape, id=f"{case}-{shape}") for shape in SHAPES for case in PLAIN),
    *(pytest.param(case, (3, 24, 3, 4), id=str(case)) for case in [*OPTIONED, *asr_options()]),
]
everywhere = pytest.mark.parametrize(("case", "shape"), CASES)


class Comparison:
    """The scalar `sum(w * y)` of a layer and its input, as torch sees it and as NumPy does."""

    def __init__(self, case: NormCase, shape: tuple[int, ...]) -> None:
        self.layer = case.layer(shape[1])
        self.state = arrays(self.layer)
        self.x = draw_input(shape).requires_grad_()
        self.leaves: dict[str, torch.Tensor] = {"x": self.x, **dict(self.layer.named_parameters())}
        self.point = {**self.state, "x": self.x.detach().numpy().copy()}
        self.case = case
        self.weight = torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def scalar(self) -> torch.Tensor:
        return (self.weight * self.layer(self.x)).sum()

    def scalar_numpy(self, point: derivative.Point) -> complex:
        state = {key: value for key, value in point.items() if key != "x"}
        return (self.weight.numpy() * reference(self.case, state, point["x"])).sum()

    def direction(self, keys: Sequence[str], seed: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        return {key: rng.standard_normal(tuple(self.leaves[key].shape)) for key in keys}


def slope(gradients: Sequence[torch.Tensor | None], direction: dict[str, np.ndarray]) -> tuple[float, float]:
    """Gradient times direction, and the size of its terms, to which rounding errors relate."""
    terms = [
        gradient.detach().numpy() * along
        for gradient, along in zip(gradients, direction.values(), strict=True)
        if gradient is not None
    ]
    return sum(float(t.sum()) for t in terms), sum(float(np.abs(t).sum()) for t in terms)


def relative_error(value: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(value - truth) / np.linalg.norm(truth))


def is_statistic(key: str) -> bool:
    return "running_" in key or "num_batches" in key


def keeps_statistics(case: NormCase) -> bool:
    return any(is_statistic(key) for key in case.layer(4).state_dict())


def test_every_norm_is_compared():
    assert {case.name for case in PLAIN} == set(numpy_norms.FORWARDS) == set(list_norms())


@everywhere
def test_values(case, shape):
    this = Comparison(case, shape)
    with torch.no_grad():
        value = this.layer(this.x).numpy()
    assert relative_error(value, reference(case, this.state, this.point["x"])) < VALUE


@everywhere
def test_first_derivatives(case, shape):
    this = Comparison(case, shape)
    gradients = torch.autograd.grad(this.scalar(), list(this.leaves.values()), materialize_grads=True)
    for key, gradient in zip(this.leaves, gradients, strict=True):
        direction = this.direction([key], seed=3)
        value, size = slope([gradient], direction)
        truth = derivative.first(this.scalar_numpy, this.point, direction)
        # Some derivatives are zero but for rounding, such as those of SN's logits where there is one channel.
        rounding = 1e-14 * float(this.weight.abs().sum())
        assert abs(value - truth) <= FIRST * max(size, abs(truth)) + rounding, key


@everywhere
def test_second_derivatives(case, shape):
    this = Comparison(case, shape)
    keys, leaves = list(this.leaves), list(this.leaves.values())
    slopes = torch.autograd.grad(this.scalar(), leaves, create_graph=True, materialize_grads=True)
    gradients = dict(zip(keys, slopes, strict=True))
    # The input's row of the Hessian, then that of all parameters together.
    for along in filter(None, (keys[:1], keys[1:])):
        direction = this.direction(along, seed=3)
        first = sum((gradients[key] * torch.from_numpy(step)).sum() for key, step in direction.items())
        rows: Sequence[torch.Tensor | None] = [None] * len(keys)
        if first.requires_grad:  # not for `none`, which is linear
            rows = torch.autograd.grad(first, leaves, allow_unused=True, retain_graph=True)
        _, size_of_first = slope([gradients[key] for key in along], direction)
        for key, row in zip(keys, rows, strict=True):
            then = this.direction([key], seed=4)
            value, size = slope([row], then)
            truth = derivative.second(this.scalar_numpy, this.point, direction, then)
            rounding = 1e-14 * size_of_first / derivative.REAL_STEP
            assert abs(value - truth) <= SECOND * max(size, abs(truth)) + rounding, (along, key)


@pytest.mark.parametrize("case", [*PLAIN, *OPTIONED, *asr_options()], ids=str)
def test_no_derivative_is_compared_where_it_is_zero(case):
    this = Comparison(case, (3, 24, 3, 4))
    for key in this.leaves:
        moved = derivative.first(this.scalar_numpy, this.point, this.direction([key], seed=3))
        of_unseen_domain = key.startswith("domains.") and int(key.split(".")[1]) not in np.ravel(this.case.domain or 0)
        assert (abs(moved) > 1e-4) != of_unseen_domain, key


@pytest.mark.parametrize("shape", [(3, 1, 4, 5), (3, 24, 3, 4), (3, 24, 7), (3, 5, 2, 3, 4)], ids=str)
@pytest.mark.parametrize(
    "case", [case for case in [*PLAIN, *OPTIONED, *asr_options()] if keeps_statistics(case)], ids=str
)
def test_running_statistics(case, shape):
    this = Comparison(case, shape)
    this.layer(this.x)
    got = arrays(this.layer)
    before = {key: value for key, value in this.state.items() if is_statistic(key)}
    if case.training:
        after = numpy_norms.updated_buffers(case.name, this.state, this.point["x"], case.numpy_options)
        assert any(not np.array_equal(after[key], before[key]) for key in before)
    else:
        after = before
    assert after
    for key, truth in after.items():
        np.testing.assert_allclose(got[key], truth, rtol=VALUE, atol=VALUE, err_msg=key)


@pytest.mark.parametrize("training", [True, False])
def test_gate_outside_its_interval_counts_as_its_end(training):
    case = NormCase("bin", training=training)
    this = Comparison(case, (3, 6, 5, 3))
    gate = torch.tensor([-0.5, 1.5, 0.3, 0.0, 1.0, 2.0], dtype=torch.float64)
    this.state["gate"] = gate.numpy().copy()
    with torch.no_grad():
        this.layer.gate.copy_(gate)
        value = this.layer(this.x).numpy()
    assert relative_error(value, reference(case, this.state, this.point["x"])) < VALUE
