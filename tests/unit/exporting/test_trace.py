"""Tracing takes the plain path: no fused kernel is chosen, and none gets through."""

from contextlib import contextmanager

import pytest
import torch

from asrnorm import ops
from asrnorm.core.errors import InputError
from asrnorm.exporting import export_run
from asrnorm.exporting.base import reference_path


def test_the_reference_is_chosen_where_there_is_a_choice(monkeypatch):
    chosen = []

    @contextmanager
    def use_backend(name):
        chosen.append(name)
        yield

    monkeypatch.setattr(ops, "use_backend", use_backend, raising=False)
    with reference_path():
        assert chosen == ["reference"]


def test_a_custom_operator_is_refused_by_name(finished, tmp_path):
    name = "asrnorm_test::halve"

    @torch.library.custom_op(name, mutates_args=())
    def halve(x: torch.Tensor) -> torch.Tensor:
        return x / 2

    halve.register_fake(torch.empty_like)
    finished.model.backbone.norm.register_forward_hook(lambda module, inputs, output: halve(output))
    with pytest.raises(InputError, match=r"custom operator asrnorm_test\.halve"):
        export_run(finished, "torch-export", tmp_path / "m.pt2")
    assert not list(tmp_path.glob("*.pt2*"))
