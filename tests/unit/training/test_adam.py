import pytest
import torch

from asrnorm.training import optim as adam
from asrnorm.training.optim import LargeAdam

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda", 0)


def make(kind, dtype=torch.float32, **options):
    torch.manual_seed(0)
    shapes = [(1000, 300), (64, 512, 3, 3), (7, 5), (3,)]
    parameters = [torch.nn.Parameter(torch.randn(shape, device=CUDA, dtype=dtype)) for shape in shapes]
    parameters[1].data = parameters[1].data.contiguous(memory_format=torch.channels_last)
    optimizer = kind(parameters, lr=torch.full((), 1e-2, device=CUDA), fused=True, capturable=True, **options)
    for parameter in parameters:
        optimizer.state[parameter] = {
            "step": torch.zeros((), device=CUDA),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return parameters, optimizer


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_are_as_exact_as_those_of_torch(weight_decay):
    kinds = ((LargeAdam, torch.float32), (torch.optim.Adam, torch.float32), (torch.optim.Adam, torch.float64))
    runs = [make(kind, dtype, weight_decay=weight_decay) for kind, dtype in kinds]
    for _, one in runs[1:]:
        for mine, value in zip(runs[0][0], one.param_groups[0]["params"], strict=True):
            value.data.copy_(mine.data)
    for step in range(20):
        generator = torch.Generator(CUDA).manual_seed(step)
        gradients = [torch.randn(value.shape, generator=generator, device=CUDA) for value in runs[0][0]]
        for parameters, optimizer in runs:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = torch.empty_like(parameter).copy_(gradient * 10.0 ** (step % 5 - 3))
            optimizer.param_groups[0]["lr"].fill_(1e-2 / (1 + step))
            optimizer.step()
            assert all(parameter.grad is not None for parameter in parameters)
    for mine, theirs, exact in zip(*(parameters for parameters, _ in runs), strict=True):
        assert error(mine, exact) <= 2 * error(theirs, exact) + 1e-7
        for name in ("exp_avg", "exp_avg_sq", "step"):
            found = [run[1].state[one][name] for run, one in zip(runs, (mine, theirs, exact), strict=True)]
            assert error(found[0], found[2]) <= 2 * error(found[1], found[2]) + 1e-6, name


def error(value, exact):
    return ((value.double() - exact).norm() / exact.norm()).item()


def test_a_small_network_has_one_launch_for_its_large_tensors(monkeypatch):
    used = []
    found = adam._find_kernel(CUDA)
    assert found is not None

    def watched(values, *rest, **options):
        used.append([tuple(value.shape) for value in values])
        return found(values, *rest, **options)

    monkeypatch.setattr(adam, "_find_kernel", lambda device: watched)
    parameters, optimizer = make(LargeAdam)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert used == [[(1000, 300), (64, 512, 3, 3)]]
    assert {float(optimizer.state[parameter]["step"]) for parameter in parameters} == {1.0}
