import os
import subprocess
import sys
import warnings

import pytest
import torch

from asrnorm import ASRNorm2d, ops
from asrnorm.core.errors import InputError
from asrnorm.norms import dispatch


def test_a_cpu_takes_the_reference_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not dispatch.takes_kernels(torch.zeros(1, 1))


def test_the_kernels_asked_for_by_name_are_refused_in_one_line_where_they_cannot_be():
    with ops.use_backend("triton"), pytest.raises(InputError, match="run on CUDA devices, the input is on cpu"):
        ASRNorm2d(4)(torch.zeros(2, 4, 3, 3))


def test_the_backend_is_put_back_after_an_error():
    with pytest.raises(RuntimeError), ops.use_backend("reference"):
        raise RuntimeError
    assert dispatch._backend == "auto"


def test_an_unknown_backend_is_refused():
    with pytest.raises(InputError, match="one of auto, reference, triton, not 'cuda'"), ops.use_backend("cuda"):
        pass


def test_a_wrong_variable_is_one_line():
    environment = {**os.environ, "ASRNORM_BACKEND": "fast"}
    child = subprocess.run(
        [sys.executable, "-c", "import asrnorm.ops"], env=environment, capture_output=True, text=True, check=False
    )
    assert child.returncode
    assert "ASRNORM_BACKEND must be one of auto, reference, triton, not 'fast'" in child.stderr


def test_importing_the_layers_does_not_import_the_kernels():
    code = "import sys, asrnorm.norms, asrnorm.norms.dispatch; sys.exit('asrnorm.kernels' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class OnGpu:
    """What the choice looks at of a tensor on a GPU."""

    device = torch.device("cuda:0")
    dtype = torch.float32


@pytest.fixture
def old_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (7, 0))
    monkeypatch.setattr(dispatch, "_warned", set())


@pytest.mark.usefixtures("old_gpu")
def test_an_old_gpu_falls_back_with_one_warning_that_says_why():
    with pytest.warns(RuntimeWarning, match=r"compute capability 7\.0, the kernels need 8\.0"):
        assert not dispatch.takes_kernels(OnGpu())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not dispatch.takes_kernels(OnGpu())


def test_without_triton_it_falls_back_and_says_what_to_install(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(dispatch, "_warned", set())
    monkeypatch.setattr(dispatch, "_problem", [])
    for name in [name for name in sys.modules if name.startswith(("triton", "asrnorm.kernels"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.warns(RuntimeWarning, match="pip install triton"):
        assert not dispatch.takes_kernels(OnGpu())


def test_the_first_use_of_the_kernels_says_once_that_they_are_compiled(monkeypatch, caplog):
    monkeypatch.setattr(dispatch, "kernel_problem", lambda index: None)
    monkeypatch.setattr(dispatch, "_warned", set())
    assert not dispatch.takes_kernels(torch.zeros(1, 1))
    assert not caplog.records  # not on a CPU
    assert all(dispatch.takes_kernels(OnGpu()) for _ in range(3))
    (said,) = caplog.records
    assert said.name == "asrnorm"
    assert "compiling" in said.getMessage()


def test_double_precision_is_the_references():
    assert "torch.float64" in str(dispatch._why_reference(type("X", (OnGpu,), {"dtype": torch.float64})()))


def test_importing_the_norms_does_not_import_the_compiler():
    words = "import sys, asrnorm.norms; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_what_the_compiler_may_ask_once_is_marked_as_torch_marks_it():
    marked = torch.compiler.assume_constant_result(lambda: None)
    for function in (dispatch.kernel_problem, dispatch.load_problem, dispatch._is_exporting):
        assert vars(function).items() >= vars(marked).items()
        assert vars(marked)
