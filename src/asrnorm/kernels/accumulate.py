"""Adding the gradients of all parameters of a layer to their `.grad` at once.

Returned to autograd, every gradient is checked, queued and accumulated by itself, which takes the host longer than a
layer's kernels take the GPU. The parameters stay inputs of the function: their nodes run with nothing to add, and hooks
on the nodes find the sum in `.grad`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributed

_LEAVES = Tensor, torch.nn.Parameter
_will_execute = getattr(torch._C, "_will_engine_execute_node", None)


def accumulate(nodes: Sequence[tuple[Any, int]], grads: Sequence[Tensor]) -> bool:
    """Do what autograd would do with gradients returned to these nodes; return whether nothing is left to it.

    Autograd is left with all of them where one is asked for, not accumulated, or where a hook wants to see it.
    """
    if not _may_write(grads[0]):
        return False
    pairs = [(node, grad) for (node, _), grad in zip(nodes, grads, strict=True) if node is not None]
    is_plain = all([_is_plain(node, grad) for node, grad in pairs])  # noqa: C419 a generator takes longer
    if not is_plain or len({node for node, _ in pairs}) < len(pairs):  # tied parameters
        return False
    present, more = [], []
    for node, grad in pairs:
        leaf = node.variable
        if leaf.grad is None:
            leaf.grad = grad
        else:
            present.append(leaf.grad)
            more.append(grad)
    if present:
        torch._foreach_add_(present, more)
    return len(pairs) > 0


def _may_write(grad: Tensor) -> bool:
    """Tell whether this is a plain backward pass on the one stream that everything runs on.

    A node runs on the stream it was made on; autograd lets it wait for the gradients it is given, not for ours. DDP
    keeps the nodes, and Lightning makes DDP on a stream of its own.
    """
    if _will_execute is None or torch.is_anomaly_enabled() or torch.compiler.is_compiling():
        return False
    if distributed.is_available() and distributed.is_initialized():
        return False
    return not grad.is_cuda or torch._C._cuda_getCurrentRawStream(grad.get_device()) == 0


def _is_plain(node: Any, grad: Tensor) -> bool:
    """Tell whether autograd would add the gradient to a parameter's, of its dtype, without any hook on the tensor."""
    leaf: Any = getattr(node, "variable", None)  # of a node that accumulates
    try:
        if type(leaf) not in _LEAVES or not _will_execute(node):  # type: ignore[misc]
            return False
    except RuntimeError:  # `torch.autograd.grad` for this parameter
        return False
    before, dtype = leaf.grad, grad.dtype
    has_hook = leaf._backward_hooks or leaf._post_accumulate_grad_hooks
    if has_hook or leaf.dtype is not dtype or getattr(leaf, "grad_dtype", dtype) is not dtype:
        return False
    return before is None or (type(before) is Tensor and before.dtype is dtype and before.layout is torch.strided)
