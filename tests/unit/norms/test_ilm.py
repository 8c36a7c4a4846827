"""ILM-Norm, whose sizes are its authors'."""

import pytest
import torch

from asrnorm.core.errors import InputError
from asrnorm.norms import ILMNorm


def test_ilm_sizes_follow_its_authors():
    assert ILMNorm(64).encoder.weight.shape == (2, 4)
    assert ILMNorm(512).encoder.weight.shape == (2, 32)
    assert ILMNorm(1024).encoder.weight.shape == (4, 64)
    assert ILMNorm(24).group_size == 12
    assert sum(p.numel() for p in ILMNorm(64).parameters()) == 2 * 4 * 3 + 128
    with pytest.raises(InputError, match="must be at least 1"):
        ILMNorm(8, group_size=0)


def test_ilm_gain_is_shared_in_a_key_group():
    layer = ILMNorm(32)
    x = torch.randn(2, 32, 6, 6)
    gain = (layer(x).amax((2, 3)) - layer(x).amin((2, 3))) / (x.amax((2, 3)) - x.amin((2, 3))) * x.std((2, 3))
    torch.testing.assert_close(gain[:, :16], gain[:, :1].expand(2, 16), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(gain[:, 16:], gain[:, 16:17].expand(2, 16), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("channels", "hidden"), [(64, 2), (256, 2), (320, 1), (512, 2), (1024, 4)])
def test_the_hidden_units_of_ilm_are_those_of_its_authors(channels, hidden):
    layer = ILMNorm(channels, group_size=16, reduction=16)
    assert layer.encoder.weight.shape == (hidden, channels // 16)
