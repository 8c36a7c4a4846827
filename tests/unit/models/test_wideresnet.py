"""Wide ResNets."""

import pytest
import torch

from asrnorm.core.errors import InputError
from asrnorm.models import WideResNet
from asrnorm.models.wideresnet import PreActivationBlock
from asrnorm.norms import BatchNorm


def test_a_wrong_depth_is_refused():
    with pytest.raises(InputError, match="depth must be 6n"):
        WideResNet(20, 4)


def test_where_the_width_changes_the_shortcut_starts_after_the_first_relu():
    block = PreActivationBlock(4, 6, 2, BatchNorm).eval()
    torch.nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 4, 8, 8)
    torch.testing.assert_close(block(x), block.shortcut(torch.relu(block.norm1(x))))
    same = PreActivationBlock(4, 4, 1, BatchNorm).eval()
    torch.nn.init.zeros_(same.conv2.weight)
    torch.testing.assert_close(same(x), x)
