"""Running statistics, of all norms that have some."""

import pytest
import torch
from torch import nn

from asrnorm.norms import create_norm


@pytest.mark.parametrize("name", ["bn", "bn_test", "sn", "bin"])
def test_without_momentum_all_batches_weigh_the_same(name):
    torch.manual_seed(0)
    data = [5 + 2 * torch.randn(16, 3, 8, 8) for _ in range(5)]
    model = nn.Sequential(create_norm(name, 3, momentum=None))
    for batch in data:
        model(batch)
    torch.testing.assert_close(model[0].running_mean, torch.stack(data).mean((0, 1, 3, 4)))
    variance = torch.stack([batch.var((0, 2, 3)) for batch in data]).mean(0)
    torch.testing.assert_close(model[0].running_var, variance, rtol=0.05, atol=0)


@pytest.mark.parametrize("name", ["bn", "bn_test", "dsbn"])
def test_averaged_weights_get_the_statistics_that_pytorch_gives(name):
    data = [5 + 2 * torch.randn(16, 3, 8, 8) for _ in range(5)]
    ours, theirs = nn.Sequential(create_norm(name, 3)), nn.Sequential(nn.BatchNorm2d(3))
    for model in (ours, theirs):
        torch.optim.swa_utils.update_bn(data, model)
    state = ours[0].domains[0] if name == "dsbn" else ours[0]
    torch.testing.assert_close(state.running_mean, theirs[0].running_mean)
    torch.testing.assert_close(state.running_var, theirs[0].running_var)
