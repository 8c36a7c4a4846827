import pytest
import torch

from asrnorm.conversion.calibration import Moments


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (5,), (4, 6)])
def test_moments_over_batches_are_those_of_all_values(dtype, shape):
    torch.manual_seed(0)
    batches = [(100 + size * torch.randn(size, 3, *shape)).to(dtype) for size in (1, 7, 4)]
    moments = Moments()
    for batch in batches:
        moments.add(batch)
    whole = torch.cat(batches).double().transpose(0, 1).flatten(1)
    assert moments.count == whole.shape[1]
    torch.testing.assert_close(moments.mean, whole.mean(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(moments.variance, whole.var(1, correction=0), rtol=1e-5, atol=0)
