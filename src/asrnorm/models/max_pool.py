"""Max pooling of 2x2 squares, by a Triton kernel where it can run."""

import torch.nn.functional as F
from torch import Tensor

from asrnorm.norms.dispatch import takes_kernels


def max_pool_2x2(x: Tensor) -> Tensor:
    """Return `F.max_pool2d(x, 2)`; on a GPU by a kernel for maps with even sides.

    Args:
        x: `(n, c, h, w)`.

    Example:
        >>> import torch
        >>> max_pool_2x2(torch.arange(16.0).reshape(1, 1, 4, 4)).flatten().tolist()
        [5.0, 7.0, 13.0, 15.0]
    """
    if x.device.type == "cuda" and x.ndim == 4 and not (x.shape[2] % 2 or x.shape[3] % 2) and takes_kernels(x):
        from asrnorm.kernels import launch

        if not launch.is_traced(x):
            from asrnorm.kernels.pool import max_pool

            return max_pool(x)
    return F.max_pool2d(x, 2)
