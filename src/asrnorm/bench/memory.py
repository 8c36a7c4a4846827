"""Memory of a piece of work: the peak on a GPU, and what autograd keeps for the backward pass on any device."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from asrnorm.bench.device import is_cuda


def saved_bytes(function: Callable[[], object], kept: tuple[Tensor, ...] = ()) -> int:
    """Return the bytes that autograd keeps of a forward pass, each memory once.

    Args:
        function: the forward pass.
        kept: tensors that live anyway, such as parameters.

    Example:
        >>> x = torch.ones(100, requires_grad=True)
        >>> saved_bytes(lambda: (x * x).exp(), kept=(x,))  # exp keeps its result
        400
    """
    living = {tensor.untyped_storage().data_ptr() for tensor in kept}
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in living:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function()  # held, so that no memory is counted twice after it was freed and taken again
    del result
    return sum(storages.values())


def peak_bytes(function: Callable[[], object], device: torch.device) -> int | None:
    """Return by how much the memory in use rises at most during a call; `None` where nothing counts it.

    What lives before the call is not counted: where gradients, parameters and the optimizer's state do, this is the
    peak of a step less all of them.
    """
    if not is_cuda(device):
        return None
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    result = function()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device) - before
    del result
    return peak


def parameters_of(*modules: nn.Module) -> tuple[Tensor, ...]:
    """Return parameters and buffers, which live whether there is a backward pass or not."""
    return tuple(tensor for module in modules for tensor in (*module.parameters(), *module.buffers()))
