"""An exported file computes what the run does, describes itself, and exists whole or not at all."""

import dataclasses
import errno
import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from asrnorm import ops
from asrnorm.core import files
from asrnorm.core.errors import InputError, MissingDependencyError, StorageError, UnknownNameError, WrongCallError
from asrnorm.exporting import FORMATS, ExportRequest, export_run, load_weight_file
from asrnorm.exporting.export import relative_error, verify
from asrnorm.exporting.formats import ONNX_LIBRARIES
from asrnorm.training import load_run

SIZE = 8  # of the toys

# Runs with no import path but torch's and onnxruntime's, and refuses this package by name.
ALONE = """
import json, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "asrnorm":
            raise ImportError("asrnorm is not here")
sys.meta_path.insert(0, Refuse())
import numpy as np
file, arrays = sys.argv[1:]
images = np.load(arrays)
card = json.load(open(file + ".json"))
if card["format"] == "onnx":
    import onnxruntime
    (logits,) = onnxruntime.InferenceSession(file).run(None, {card["input"]["name"]: images})
else:
    import torch
    logits = torch.export.load(file).module()(torch.from_numpy(images)).detach().numpy()
assert not [name for name in sys.modules if name.split(".")[0] == "asrnorm"]
print(json.dumps(logits.tolist()))
"""


def path_for(folder, name):
    return folder / f"model{FORMATS[name].suffix}"


@pytest.fixture
def onnx():
    for library in ONNX_LIBRARIES:
        pytest.importorskip(library, reason="pip install 'asrnorm[onnx]'")


@pytest.mark.usefixtures("onnx")
@pytest.mark.parametrize("name", ["onnx", "torch-export"])
def test_a_file_runs_in_a_process_without_this_package(name, finished, tmp_path):
    done = export_run(finished, name, path_for(tmp_path, name))
    images = torch.rand(5, 3, SIZE, SIZE)
    np.save(tmp_path / "images.npy", images.numpy())
    command = [sys.executable, "-I", "-c", ALONE, str(done.path), str(tmp_path / "images.npy")]
    process = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert process.returncode == 0, process.stderr
    with torch.no_grad():
        expected = finished.model(images)
    torch.testing.assert_close(torch.tensor(json.loads(process.stdout)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("onnx")
@pytest.mark.parametrize("name", ["onnx", "torch-export", "safetensors"])
def test_the_card_says_what_goes_in_and_what_comes_out(name, finished, tmp_path):
    done = export_run(finished, name, path_for(tmp_path, name))
    card = json.loads(done.sidecars[0].read_text())
    assert done.sidecars[0].name == f"{done.path.name}.json"
    assert card["classes"] == ["left", "middle", "right"]
    assert card["input"]["shape"] == ["batch", 3, SIZE, SIZE]
    assert (card["input"]["range"], card["input"]["layout"], card["input"]["normalization"]) == (
        [0, 1],
        "NCHW",
        "inside",
    )
    assert card["output"]["shape"] == ["batch", 3]
    assert card["verified"]["relative_error"] == done.verdict.relative_error <= card["verified"]["tolerance"]
    assert {path.name for path in tmp_path.glob("model.*")} == {path.name for path in (done.path, *done.sidecars)}
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", ["bn_test", "sn", "none"])
def test_other_norms_can_be_exported_too(name, folder_of, tmp_path):
    done = export_run(load_run(folder_of(name), device="cpu"), "torch-export", tmp_path / "model.pt2")
    card = json.loads(done.sidecars[0].read_text())
    assert card["looks_at_other_images"] == (name == "bn_test")


def test_weights_and_config_make_the_model_again(finished, tmp_path):
    done = export_run(finished, "safetensors", tmp_path / "w.safetensors")
    assert {path.name for path in done.sidecars} == {"w.safetensors.json", "w.safetensors.yaml"}
    images = torch.rand(2, 3, SIZE, SIZE)
    with torch.no_grad():
        assert torch.equal(load_weight_file(done.path)(images), finished.model(images))
    done.sidecars[0].unlink()
    with pytest.raises(InputError, match=r"^.*w\.safetensors\.json: "):
        load_weight_file(done.path)


def test_a_fixed_batch_is_the_only_one_the_file_takes(finished, tmp_path):
    done = export_run(finished, "torch-export", tmp_path / "m.pt2", batch=4)
    assert done.verdict.batches == (4,)
    program = torch.export.load(done.path).module()
    assert program(torch.rand(4, 3, SIZE, SIZE)).shape == (4, 3)
    with pytest.raises(AssertionError):
        program(torch.rand(5, 3, SIZE, SIZE))


def test_a_run_in_float64_becomes_a_float32_file(folder_of, tmp_path):
    run = load_run(folder_of(precision="float64"), device="cpu")
    done = export_run(run, "torch-export", tmp_path / "m.pt2")
    assert json.loads(done.sidecars[0].read_text())["input"]["dtype"] == "float32"
    assert next(run.model.parameters()).dtype == torch.float64  # the run itself is left alone


@pytest.mark.usefixtures("onnx")
@pytest.mark.parametrize("name", ["onnx", "torch-export"])
def test_the_file_holds_no_path_of_the_machine_it_was_made_on(name, finished, tmp_path):
    content = export_run(finished, name, path_for(tmp_path, name)).path.read_bytes()
    assert str(tmp_path).encode() not in content
    assert b".py" not in content.replace(b".pytorch", b"")


@pytest.mark.usefixtures("onnx")
def test_the_batch_of_an_onnx_file_has_a_name_and_its_opset_is_the_one_asked_for(finished, tmp_path):
    import onnx

    done = export_run(finished, "onnx", tmp_path / "m.onnx", opset=18)
    model = onnx.load(done.path)
    assert model.opset_import[0].version == 18
    (images,) = model.graph.input
    assert (images.name, images.type.tensor_type.shape.dim[0].dim_param) == ("images", "batch")
    assert {node.domain for node in model.graph.node} == {""}  # no operator but the standard's


def test_a_file_that_computes_something_else_gets_no_name(finished, tmp_path, monkeypatch):
    true = FORMATS["torch-export"]
    wrong = dataclasses.replace(true, open=lambda path, request: lambda images: true.open(path, request)(images) + 1e-3)
    monkeypatch.setitem(FORMATS, "torch-export", wrong)
    out = tmp_path / "model.pt2"
    out.write_bytes(b"an earlier file")
    with pytest.raises(InputError, match=r"^model\.pt2: "):
        export_run(finished, "torch-export", out)
    assert out.read_bytes() == b"an earlier file"
    assert [path.name for path in tmp_path.glob("*model*")] == ["model.pt2"]
    assert not list(tmp_path.glob(".*"))


def test_contradicting_options_raise(finished, tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'onnx'"):
        export_run(finished, "onxx", tmp_path / "m.onnx")
    for name, file, options in (
        ("torch-export", "m.onnx", {}),
        ("torch-export", "m.pt2", {"opset": 18}),
        ("torch-export", "m.pt2", {"batch": 0}),
        ("torch-export", "m.pt2", {"size": (0, 8)}),
        ("safetensors", "m.safetensors", {"batch": 2}),
    ):
        with pytest.raises(WrongCallError):
            export_run(finished, name, tmp_path / file, **options)
    with pytest.raises(InputError, match=r"11x8.* 8x8"):
        export_run(finished, "torch-export", tmp_path / "m.pt2", size=(11, 8))
    assert not list(tmp_path.glob("m.*"))


@pytest.mark.usefixtures("onnx")
@pytest.mark.parametrize("opset", [7, 999])
def test_an_opset_out_of_range_is_a_wrong_call(opset, finished, tmp_path):
    with pytest.raises(WrongCallError, match=f"opset {opset}: "):
        export_run(finished, "onnx", tmp_path / "m.onnx", opset=opset)


def test_a_missing_library_is_named_before_any_work(finished, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingDependencyError, match=r"needs onnxscript: pip install 'asrnorm\[onnx\]'"):
        export_run(finished, "onnx", tmp_path / "m.onnx")


def test_a_place_that_cannot_be_written_is_one_line(finished, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="choose another --out"):
        export_run(finished, "torch-export", tmp_path / "file" / "m.pt2")


def test_a_full_disk_leaves_the_earlier_file_and_its_card(finished, tmp_path, monkeypatch):
    out = tmp_path / "out"
    export_run(finished, "torch-export", out / "m.pt2")
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(StorageError, match=r"m\.pt2: No space left on device; choose another --out$"):
        export_run(finished, "torch-export", out / "m.pt2", batch=4)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_the_run_is_not_changed_by_its_export(finished, tmp_path):
    before = {name: value.clone() for name, value in finished.model.state_dict().items()}
    export_run(finished, "torch-export", tmp_path / "m.pt2")
    assert all(torch.equal(value, before[name]) for name, value in finished.model.state_dict().items())
    assert not finished.model.training
    assert dataclasses.is_dataclass(finished)


def test_tracing_takes_the_reference_backend(finished, tmp_path, monkeypatch):
    chosen, use_backend = [], ops.use_backend
    monkeypatch.setattr(ops, "use_backend", lambda name: chosen.append(name) or use_backend(name))
    export_run(finished, "torch-export", tmp_path / "m.pt2")
    assert chosen == ["reference", "reference"]  # to trace, and to compare


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


def test_the_error_is_relative_to_the_largest_logit():
    assert relative_error(torch.tensor([[100.0, 1.0]]), torch.tensor([[100.0, 2.0]])) == 0.01
    assert relative_error(torch.zeros(2, 3), torch.zeros(3, 2)) == math.inf
    assert math.isnan(relative_error(torch.tensor([math.nan]), torch.tensor([1.0])))


class MeanColor(nn.Module):
    """Two logits that are the mean color; an offset adds the rounding errors of numbers that large."""

    def __init__(self, offset=0):
        super().__init__()
        self.linear, self.offset = nn.Linear(48, 2, bias=False), offset
        nn.init.constant_(self.linear.weight, 1 / 48)

    def forward(self, images):
        return (self.linear(images.flatten(1)) + self.offset) - self.offset


def verify_changed(model, change):
    request = ExportRequest(run=None, model=model.eval(), size=(4, 4), batch=None)
    return verify(lambda images: change(images, model(images)), request, "file")


@pytest.mark.parametrize("broken", [(1,), (3,), (8,), (1, 3, 8)])
def test_a_file_that_computes_nan_for_any_batch_is_refused(broken):
    with pytest.raises(InputError, match=r"^file: "):
        verify_changed(MeanColor(), lambda images, logits: logits * (math.nan if len(images) in broken else 1.0))


def test_a_model_that_computes_nan_is_refused():
    model = MeanColor()
    with torch.no_grad():
        model.linear.weight[0, 0] = math.nan
    with pytest.raises(InputError, match="the model itself computes NaN"):
        verify_changed(model, lambda images, logits: logits)


def test_the_rounding_error_of_the_model_is_tolerated_in_the_file():
    model = MeanColor(offset=1000)  # rounds by about 5e-5 of a logit
    assert 1e-5 < verify_changed(model, lambda images, logits: logits * (1 + 2e-5)).tolerance < 5e-4
    with pytest.raises(InputError):
        verify_changed(model, lambda images, logits: logits * (1 + 2e-3))


def test_a_difference_larger_than_rounding_is_refused():
    verdict = verify_changed(MeanColor(), lambda images, logits: logits * (1 + 3e-6))
    assert (verdict.tolerance, verdict.batches) == (1e-5, (1, 3, 8))
    assert verdict.relative_error == pytest.approx(3e-6, rel=0.2)
    with pytest.raises(InputError, match=r"3\.0e-05 .* 1\.0e-05"):
        verify_changed(MeanColor(), lambda images, logits: logits * (1 + 3e-5))
