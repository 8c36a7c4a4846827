"""A CUDA graph on the CPU: operations are recorded without effect and repeated on the same tensors at every replay."""

import contextlib

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from asrnorm.core import captured_step


class FakeGraph(TorchDispatchMode):
    """Records what `function` computes; its changes to tensors that existed before are undone."""

    def __init__(self, function):
        super().__init__()
        self._operations, self._undo = [], []
        with self:
            self.output = function()
        with torch.no_grad():
            for tensor, value in reversed(self._undo):
                tensor.copy_(value)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        for place, argument in enumerate(func._schema.arguments):
            is_written = argument.alias_info is not None and argument.alias_info.is_write
            if is_written or argument.name.startswith("running_"):  # BatchNorm's schema does not say so
                given = kwargs.get(argument.name, args[place] if place < len(args) else None)
                self._undo += [(value, value.clone()) for value in pytree.tree_leaves(given) if value is not None]
        result = func(*args, **kwargs)
        self._operations.append((func, args, kwargs, result))
        return result

    def replay(self):
        with torch.no_grad():
            for func, args, kwargs, result in self._operations:
                for old, new in zip(pytree.tree_leaves(result), pytree.tree_leaves(func(*args, **kwargs)), strict=True):
                    if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


def use_fake_graphs(monkeypatch):
    """Let `asrnorm.capture` record and replay on the CPU; return the list of the graphs it records."""
    graphs = []

    def record(function, stream):
        graphs.append(FakeGraph(function))
        return graphs[-1]

    monkeypatch.setattr(captured_step, "_DEVICES", ("cpu",))
    monkeypatch.setattr(captured_step, "record", record)
    monkeypatch.setattr(captured_step, "on_stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(captured_step, "watch_synchronization", lambda: contextlib.nullcontext([]))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    return graphs
