import pytest
import torch

from asrnorm.training import adam
from asrnorm.training.adam import LargeAdam

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
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_are_those_of_torch(weight_decay, dtype):
    mine, theirs = (make(kind, dtype, weight_decay=weight_decay) for kind in (LargeAdam, torch.optim.Adam))
    for step in range(20):
        for (parameters, optimizer), rate in zip((mine, theirs), (1e-2 / (1 + step),) * 2, strict=True):
            generator = torch.Generator(CUDA).manual_seed(step)
            for parameter in parameters:
                gradient = torch.randn(parameter.shape, generator=generator, device=CUDA, dtype=dtype)
                parameter.grad = torch.empty_like(parameter).copy_(gradient * 10.0 ** (step % 5 - 3))
            optimizer.param_groups[0]["lr"].fill_(rate)
            optimizer.step()
            assert all(parameter.grad is not None for parameter in parameters)
    for one, other in zip(mine[0], theirs[0], strict=True):
        # The means of gradients up to 40 may cancel to nearly nothing.
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6)
        for name in ("exp_avg", "exp_avg_sq", "step"):
            torch.testing.assert_close(mine[1].state[one][name], theirs[1].state[other][name], rtol=1e-5, atol=2e-6)


def test_a_small_network_has_a_kernel_for_each_large_tensor(monkeypatch):
    used = []
    found = adam._find_kernel(CUDA)
    assert found is not None
    monkeypatch.setattr(adam, "_find_kernel", lambda device: lambda *a, **k: used.append(a[0].shape) or found(*a, **k))
    parameters, optimizer = make(LargeAdam)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert used == [(1000, 300), (64, 512, 3, 3)]
    assert {float(optimizer.state[parameter]["step"]) for parameter in parameters} == {1.0}
