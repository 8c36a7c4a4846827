"""Statistics of the batch in training, running ones in evaluation, for layers that mix them with others."""

from typing import Any

import torch
from torch import Tensor

from asrnorm.norms import reference
from asrnorm.norms.base import NormLayer, join_processes, spatial_size, weigh_newest


class TracksBatch(NormLayer):
    """A norm layer that keeps running statistics under the names that `torch.nn.BatchNorm2d` gives them."""

    momentum: float | None = 0.1
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def start_tracking(self, **factory: Any) -> None:
        """Register the running statistics."""
        self.register_buffer("running_mean", torch.zeros(self.num_features, **factory))
        self.register_buffer("running_var", torch.ones(self.num_features, **factory))
        count = torch.tensor(0, dtype=torch.long, device=factory.get("device"))
        self.register_buffer("num_batches_tracked", count)

    def reset_tracking(self) -> None:
        """Forget all batches."""
        self.running_mean.zero_()
        self.running_var.fill_(1.0)
        self.num_batches_tracked.zero_()

    def batch_moments(
        self, x: Tensor, mean_nc: Tensor, variance_nc: Tensor, *, track: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the batch, `(1, c)` each; in evaluation the running ones.

        Args:
            x: the input the moments were taken from.
            mean_nc: means of its samples' channels.
            variance_nc: their variances; what is tracked is joined from these as they are, and corrected to the
                unbiased estimate as BatchNorm does where they are biased.
            track: let the running statistics follow.
        """
        # Where processes share a batch, one without samples takes part: the others wait for it.
        if not self.training or (x.shape[0] == 0 and self.process_sum is None):
            dtype = mean_nc.dtype
            return self.running_mean.to(dtype)[None], self.running_var.to(dtype)[None]
        samples: int | Tensor = x.shape[0]
        if self.process_sum is None:
            self.refuse_single_element(x, x.shape[0] * spatial_size(x), "channel of the batch")
            mean, variance = reference.pool_moments(mean_nc, variance_nc, dim=0)
        else:
            mean, variance, samples = join_processes(mean_nc, variance_nc, self.process_sum)
        if not track:
            return mean, variance
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            momentum = weigh_newest(self.momentum, self.num_batches_tracked)
            self.running_mean.lerp_(mean[0].to(self.running_mean.dtype), momentum)
            tracked = self.tracked_variance(variance, samples * spatial_size(x))[0]
            self.running_var.lerp_(tracked.to(self.running_var.dtype), momentum)
        return mean, variance

    def tracked_variance(self, variance: Tensor, count: int | Tensor) -> Tensor:
        """Return the variance to track: the unbiased estimate from a biased one over `count` values."""
        return variance * (count / (count - 1))
