"""An ONNX file gives the network's logits, whatever its batch size or layout, and has no gradients."""

import sys

import numpy as np
import pytest
import torch

from asrnorm.audit.load import load_model
from asrnorm.core.errors import InputError, MissingDependencyError
from helpers.audited import ColorNet

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install 'asrnorm[onnx]'")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'asrnorm[onnx]'")


def write(path, batch="n", channels_last=False, softmax=False, inputs=1):
    """Write `ColorNet` by hand, so that no exporter is needed."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    network = ColorNet()
    shape = [batch, 16, 16, 3] if channels_last else [batch, 3, 16, 16]
    axes = [1, 2] if channels_last else [2, 3]
    weights = {"w": network.fc.weight.detach().numpy(), "b": network.fc.bias.detach().numpy()}
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    constants.append(onnx.numpy_helper.from_array(np.array(axes, np.int64), "axes"))
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["m"], keepdims=0),
        helper.make_node("Gemm", ["m", "w", "b"], ["y"], transB=1),
    ]
    nodes += [helper.make_node("Softmax", ["y"], ["p"], axis=1)] if softmax else []
    given = [helper.make_tensor_value_info(name, kind, shape) for name in "xz"[:inputs]]
    answer = helper.make_tensor_value_info("p" if softmax else "y", kind, [batch, 3])
    graph = helper.make_graph(nodes, "net", given, [answer], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)


def load(path):
    model = load_model(str(path), device="cpu")
    model.probe((16, 16))
    return model


@pytest.mark.parametrize("options", [{}, {"batch": 4}, {"channels_last": True}, {"softmax": True}])
def test_the_answers_are_those_of_the_network(tmp_path, options):
    write(tmp_path / "net.onnx", **options)
    model = load(tmp_path / "net.onnx")
    images = torch.rand(6, 3, 16, 16)
    expected = ColorNet()(images).softmax(1)
    assert torch.allclose(model.predict(images).softmax(1), expected, atol=1e-5)
    assert model.probabilities == bool(options.get("softmax"))
    assert model.input_spec.batch == options.get("batch")
    assert (model.num_classes, model.native_size) == (3, (16, 16))
    assert model.no_gradients == "the file has no gradients"


def test_weights_beside_a_file_are_part_of_it(tmp_path):
    write(tmp_path / "net.onnx")
    onnx.save(
        onnx.load(tmp_path / "net.onnx"),
        tmp_path / "apart.onnx",
        save_as_external_data=True,
        location="apart.onnx.data",
        size_threshold=60,  # as Python counts bytes: the matrix alone
    )
    data = tmp_path / "apart.onnx.data"
    before, file = load(tmp_path / "apart.onnx").fingerprint, (tmp_path / "apart.onnx").read_bytes()
    assert load(tmp_path / "apart.onnx").fingerprint == before
    (tmp_path / "unrelated.data").write_bytes(b"1")
    assert load(tmp_path / "apart.onnx").fingerprint == before
    weights = bytearray(data.read_bytes())
    weights[3] ^= 1  # the lowest bit of an exponent
    data.write_bytes(weights)
    assert (tmp_path / "apart.onnx").read_bytes() == file
    assert load(tmp_path / "apart.onnx").fingerprint != before


def two_outputs(path, first, second):
    """Add a map of the colors before the scores, under the names given."""
    model = onnx.load(path)
    model.graph.node[1].output[0] = second
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = first
    model.graph.output[0].name = second
    model.graph.output.insert(0, onnx.helper.make_tensor_value_info(first, onnx.TensorProto.FLOAT, ["n", 3]))
    onnx.save(model, path)


def test_of_several_outputs_the_logits_are_taken(tmp_path):
    write(tmp_path / "net.onnx")
    two_outputs(tmp_path / "net.onnx", "embedding", "logits")
    images = torch.rand(4, 3, 16, 16)
    assert torch.allclose(load(tmp_path / "net.onnx").predict(images), ColorNet()(images), atol=1e-5)
    write(tmp_path / "other.onnx")
    two_outputs(tmp_path / "other.onnx", "embedding", "scores")
    with pytest.raises(InputError, match=r"no single output of class scores \(embedding .* call the one that is"):
        load(tmp_path / "other.onnx")


def test_what_cannot_be_audited_is_one_line(tmp_path, capfd):
    write(tmp_path / "bad.onnx")
    whole = (tmp_path / "bad.onnx").read_bytes()
    for data in (b"nothing", whole.replace(b"ReduceMean", b"Reduce\x80ean"), whole.replace(b"\x01x", b"\x01\xed")):
        (tmp_path / "bad.onnx").write_bytes(data)
        with pytest.raises(InputError, match=r"bad.onnx: not an ONNX file that onnxruntime can run"):
            load(tmp_path / "bad.onnx")
    assert capfd.readouterr() == ("", "")
    write(tmp_path / "two.onnx", inputs=2)
    with pytest.raises(InputError, match=r"an audit needs one float input"):
        load(tmp_path / "two.onnx")


def test_without_onnxruntime_the_line_says_what_to_install(tmp_path, monkeypatch):
    write(tmp_path / "net.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'asrnorm\[onnx\]'"):
        load(tmp_path / "net.onnx")


def test_a_file_without_an_output_is_one_line(tmp_path):
    write(tmp_path / "net.onnx")
    model = onnx.load(tmp_path / "net.onnx")
    del model.graph.output[:]
    onnx.save(model, tmp_path / "net.onnx")
    with pytest.raises(InputError, match=r"net.onnx"):
        load(tmp_path / "net.onnx")
