"""Layer and group norm."""

import pytest
import torch
from torch import nn

from asrnorm.core.errors import InputError
from asrnorm.norms import GroupNorm, LayerNorm

X = torch.randn(6, 8, 5, 4, generator=torch.Generator().manual_seed(3)) * 3 + 1


def test_layer_norm_is_pytorchs_over_channels_and_positions():
    torch.testing.assert_close(LayerNorm(8)(X), nn.LayerNorm([8, 5, 4])(X))


def test_group_norm_falls_back_to_a_divisor():
    assert GroupNorm(8).num_groups == 8
    assert GroupNorm(48).num_groups == 24
    assert GroupNorm(7, num_groups=4).num_groups == 1
    with pytest.raises(InputError, match="num_groups must be at least 1"):
        GroupNorm(8, num_groups=0)
