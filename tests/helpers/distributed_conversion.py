"""A distributed model that is to be converted: a process of its own, whose end does not wait for gloo.

A process group that dies with the model waits for its threads with the interpreter's lock held, which they may want.
"""

import os
import sys

import torch
from torch import nn

import asrnorm
from asrnorm.core.errors import ConversionError
from helpers.small_net import small_net, trained


def main() -> str:
    """Try to convert and revert a wrapped model, then train it; return what came of it."""
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(asrnorm.convert(trained(small_net()), "asr"))
    refused = 0
    for change in (lambda: asrnorm.convert(model, "asr"), lambda: asrnorm.revert(model)):
        try:
            change()
        except ConversionError as error:
            refused += "wrapped in DistributedDataParallel" in str(error)
    model(torch.randn(4, 3, 12, 12)).sum().backward()
    found = [parameter.grad is not None for parameter in model.parameters()]
    words = {2: "refused twice"}.get(refused, f"refused {refused} times")
    return f"{words}, {sum(found)} gradients" if all(found) else f"{words}, {found.count(False)} gradients amiss"


if __name__ == "__main__":
    sys.stdout.write(main())
    sys.stdout.flush()
    os._exit(0)
