"""A `.pt2` file gives the network's logits; nothing that it carries runs as code."""

import hashlib
import io
import json
import logging
import pickle
import shutil
import subprocess
import sys
import zipfile

import pytest
import torch
from torch import nn

from asrnorm.audit import InputSpec
from asrnorm.audit.load import load_model, normalizes_itself
from asrnorm.core.config import Choice
from asrnorm.core.errors import InputError
from asrnorm.exporting import export_run
from asrnorm.training import load_run, run
from helpers import tiny_run
from helpers.audited import ColorNet


def export(path, network=None, batch=None, side=16):
    dynamic = None if batch else ({0: torch.export.Dim("n", min=1, max=1024)},)
    network = (network or ColorNet()).eval()
    program = torch.export.export(network, (torch.rand(batch or 4, 3, side, side),), dynamic_shapes=dynamic)
    torch.export.save(program, path)
    return network


@pytest.mark.parametrize("batch", [None, 4])
def test_logits_and_gradients_are_those_of_the_network(tmp_path, batch):
    network = export(tmp_path / "net.pt2", batch=batch)
    model = load_model(str(tmp_path / "net.pt2"), device="cpu")
    model.probe((16, 16))
    assert (model.num_classes, model.input_spec.batch, model.native_size) == (3, batch, (16, 16))
    images = torch.rand(6, 3, 16, 16)
    assert torch.allclose(model.predict(images), network(images), atol=1e-6)
    assert model.has_gradients
    images.requires_grad_()
    (gradient,) = torch.autograd.grad(model.module(images).sum(), images)
    (expected,) = torch.autograd.grad(network(images).sum(), images)
    assert torch.allclose(gradient, expected, atol=1e-6)


def test_the_card_beside_a_file_says_what_its_outputs_are_called(tmp_path):
    export(tmp_path / "net.pt2")
    digest = hashlib.sha256((tmp_path / "net.pt2").read_bytes()).hexdigest()
    found = []
    for card in ("{", {"sha256": digest, "classes": ["a", "b", "c"]}, {"sha256": "of another", "classes": ["a", "b"]}):
        text = card if isinstance(card, str) else json.dumps(card)
        (tmp_path / "net.pt2.json").write_text(text)
        found.append(load_model(str(tmp_path / "net.pt2"), device="cpu").class_names)
    (tmp_path / "net.pt2.json").unlink()
    assert load_model(str(tmp_path / "net.pt2"), device="cpu").class_names is None
    assert found == [None, ("a", "b", "c"), None]


def test_a_file_whose_card_has_the_normalization_inside_gets_no_other(tmp_path):
    export(tmp_path / "net.pt2")
    file, form = str(tmp_path / "net.pt2"), InputSpec(mean=(0.5, 0.5, 0.5), std=(0.1, 0.1, 0.1))
    images = torch.rand(2, 3, 16, 16)

    def predict(**options):
        model = load_model(file, device="cpu", **options)
        model.probe((16, 16))
        return model.predict(images)

    plain, given = predict(), predict(input_spec=form)
    assert not torch.allclose(plain, given), "without a card it is normalized as asked"
    assert not normalizes_itself(file)
    digest = hashlib.sha256((tmp_path / "net.pt2").read_bytes()).hexdigest()
    card = {"sha256": digest, "classes": ["a", "b", "c"], "input": {"normalization": "inside"}}
    (tmp_path / "net.pt2.json").write_text(json.dumps(card))
    assert normalizes_itself(file)
    assert torch.equal(predict(input_spec=form), plain)


def test_images_of_another_size_are_resized(tmp_path):
    export(tmp_path / "net.pt2")
    model = load_model(str(tmp_path / "net.pt2"), device="cpu")
    model.probe((32, 32))
    assert model.predict(torch.rand(2, 3, 32, 32)).shape == (2, 3)


def test_a_file_without_gradients_says_so(tmp_path):
    class Detached(nn.Module):
        def forward(self, images):
            with torch.no_grad():
                return images.mean((2, 3))

    export(tmp_path / "net.pt2", Detached())
    model = load_model(str(tmp_path / "net.pt2"), device="cpu")
    model.probe((16, 16))
    assert model.no_gradients == "the file has no gradients"


def test_what_is_no_such_file_is_one_line(tmp_path):
    (tmp_path / "net.pt2").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"net.pt2: not a file of torch.export that this torch can read"):
        load_model(str(tmp_path / "net.pt2"))


def test_torch_is_silent_about_a_foreign_archive(tmp_path, recwarn):
    with zipfile.ZipFile(tmp_path / "net.pt2", "w") as archive:
        archive.writestr("a.txt", "x")
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    log = logging.getLogger("torch.export")
    before = log.level
    log.addHandler(handler)
    try:
        with pytest.raises(InputError, match=r"that this torch can read"):
            load_model(str(tmp_path / "net.pt2"), device="cpu")
    finally:
        log.removeHandler(handler)
    assert not records
    assert not recwarn.list
    assert log.level == before


def test_the_fingerprint_follows_constants_of_the_program(tmp_path):
    class Shifted(nn.Module):
        def __init__(self, shift):
            super().__init__()
            self.network = ColorNet()
            self.register_buffer("shift", torch.tensor(shift), persistent=False)

        def forward(self, x):
            return self.network(x - self.shift)

    found = []
    for number, shift in enumerate((0.1, 0.1, 0.9)):
        export(tmp_path / f"{number}.pt2", Shifted(shift))
        found.append(load_model(str(tmp_path / f"{number}.pt2"), device="cpu").fingerprint)
    assert found[0] == found[1] != found[2]


PROGRAM = "models/model.json"


WEIGHTS = "data/weights/model_weights_config.json"


CONSTANTS = "data/constants/model_constants_config.json"


class Net(nn.Module):
    """A network with dynamic sizes, a constant, regions without gradients and with autocast, and a dict of outputs."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.layers = nn.ModuleDict({"a-b": nn.BatchNorm2d(8), "head": nn.Linear(32, 3)})
        self.register_buffer("shift", torch.ones(1), persistent=False)

    def forward(self, images):
        maps = self.layers["a-b"](self.conv(images))
        rows = nn.functional.adaptive_avg_pool2d(maps, 2).reshape(images.shape[0], -1)
        with torch.no_grad():
            mean = rows.relu().mean() * images.shape[2] / (images.shape[3] // 2 + 1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = self.layers["head"](rows)
        return {"logits": logits.float() - mean * self.shift, "more": [rows, (mean,)]}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Members of a harmless archive, by their names below its top folder."""
    path = tmp_path_factory.mktemp("net") / "net.pt2"
    sizes = {
        axis: torch.export.Dim(name, min=8 if axis else 2, max=64) for axis, name in ((0, "n"), (2, "h"), (3, "w"))
    }
    program = torch.export.export(Net().eval(), (torch.rand(4, 3, 16, 16),), dynamic_shapes=(sizes,))
    torch.export.save(program, path, extra_files={"notes.txt": "mine"})
    with zipfile.ZipFile(path) as file:
        return {name.partition("/")[2]: file.read(name) for name in file.namelist()}


def save(path, members, top="net", compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members.items():
            file.writestr(f"{top}/{name}", content)
    return path


def edit(archive, member, change):
    """Return the archive with a JSON member changed in place by a function."""
    data = json.loads(archive[member])
    change(data)
    return {**archive, member: json.dumps(data).encode()}


def refuse(path):
    """Return the line with which a file is refused."""
    with pytest.raises(InputError) as caught:
        load_model(str(path), device="cpu")
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(str(path))
    return line


def graph(data):
    return data["graph_module"]["graph"]


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def touch(marker):
    """Return an expression of Python that makes a file."""
    return f"open({str(marker)!r}, 'w')"


def pickled(archive, marker, name):
    entry = {"path_name": name, "is_param": False, "use_pickle": True, "tensor_meta": None}
    changed = edit(archive, CONSTANTS, lambda data: data["config"].update(evil=entry))
    return {**changed, f"data/constants/{name}": pickle.dumps(Touch(marker))}


def nested_object(archive, marker):
    return pickled(archive, marker, "opaque_obj_0/x")


def plain_object(archive, marker):
    return pickled(archive, marker, "opaque_obj_0")


def size(archive, marker):
    expression = {"as_expr": {"expr_str": touch(marker), "hint": None}}

    def change(data):
        next(iter(graph(data)["tensor_values"].values()))["sizes"][0] = expression

    return edit(archive, PROGRAM, change)


def pickled_weight(archive, marker):
    buffer = io.BytesIO()
    torch.save(Touch(marker), buffer)
    changed = edit(archive, WEIGHTS, lambda data: data["config"]["conv.weight"].update(use_pickle=True))
    name = json.loads(changed[WEIGHTS])["config"]["conv.weight"]["path_name"]
    return {**changed, f"data/weights/{name}": buffer.getvalue()}


def rename(archive, old, new):
    """Rename a value wherever the program mentions it."""
    return {**archive, PROGRAM: archive[PROGRAM].replace(json.dumps(old).encode(), json.dumps(new).encode())}


def parameter_name(archive, marker):
    name = f'x y", {touch(marker)})#'
    changed = rename(archive, "conv.bias", name)
    return {**changed, WEIGHTS: changed[WEIGHTS].replace(b'"conv.bias"', json.dumps(name).encode())}


def guard(archive, marker):
    return edit(archive, PROGRAM, lambda data: data.update(guards_code=[f"{touch(marker)} is not None"]))


def keyword(archive, marker):
    def change(data):
        node = next(node for node in graph(data)["nodes"] if "set_grad_enabled" in node["target"])
        node["inputs"].append({"name": f"a={touch(marker)}, b", "arg": {"as_int": 1}, "kind": 2})

    return edit(archive, PROGRAM, change)


def shared_file(archive, marker):
    def change(data):
        node = next(node for node in graph(data)["nodes"] if "_assert_tensor_metadata" in node["target"])
        values = {"filename": {"as_string": str(marker)}, "shared": {"as_bool": True}, "size": {"as_int": 8}}
        node["target"] = "torch.ops.aten.from_file.default"
        node["inputs"] = [{"name": name, "arg": value, "kind": 1} for name, value in values.items()]
        node["outputs"] = [{"as_none": True}]

    return edit(archive, PROGRAM, change)


def library(archive, marker):
    source = f'#include <stdio.h>\n__attribute__((constructor)) void run(void) {{ fopen("{marker}", "w"); }}\n'
    marker.with_suffix(".c").write_text(source)
    built = marker.with_suffix(".so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", built, marker.with_suffix(".c")], check=True)
    folder = "data/aotinductor/model"
    metadata = b'{"AOTI_DEVICE_KEY": "cpu"}'
    return {**archive, f"{folder}/a.wrapper.so": built.read_bytes(), f"{folder}/a.wrapper_metadata.json": metadata}


EXPLOITS = [nested_object, plain_object, size, pickled_weight, parameter_name, guard, keyword, shared_file]


EXPLOITS += [library] if shutil.which("cc") else []


CARELESS = """
import sys, torch
for path in sys.argv[1:]:
    try:
        torch.export.load(path).module()(torch.rand(4, 3, 16, 16))
    except Exception:
        pass
"""


@pytest.fixture(scope="module")
def exploits(archive, tmp_path_factory):
    """Path and marker of every exploit; torch ran them all once."""
    folder = tmp_path_factory.mktemp("exploits")
    made = {}
    for exploit in EXPLOITS:
        marker = folder / exploit.__name__
        made[exploit] = save(folder / f"{exploit.__name__}.pt2", exploit(archive, marker)), marker
    paths = [path for path, _ in made.values()]
    subprocess.run([sys.executable, "-c", CARELESS, *paths], capture_output=True, timeout=300, check=True)
    return made


@pytest.mark.parametrize("exploit", EXPLOITS, ids=lambda exploit: exploit.__name__)
def test_what_runs_code_in_torch_does_not_run_here(exploits, exploit):
    path, marker = exploits[exploit]
    assert marker.exists(), "the exploit does not work in this torch"
    marker.unlink()
    if exploit is guard:  # left out: no prediction needs it
        load_model(str(path), device="cpu").probe((16, 16))
    else:
        assert "such a file can run code" in refuse(path)
    assert not marker.exists()


def test_sample_inputs_are_never_read(archive, tmp_path):
    marker = tmp_path / "marker"
    buffer = io.BytesIO()
    torch.save({"images": Touch(marker)}, buffer)
    path = save(tmp_path / "net.pt2", {**archive, "data/sample_inputs/model.pt": buffer.getvalue()})
    load_model(str(path), device="cpu").probe((16, 16))
    assert not marker.exists()


@pytest.mark.parametrize(
    "name",
    [
        "data/constants/custom_obj_0",
        "data/weights/model.pt",
        "data/weights/../constants/tensor_1",
        "data/weights/weight_0/x",
        "data/aotinductor/model/a.cpp",
        "models/other.json",
        "models/../models/model.json",
        "extra/../models/model.json",
        "/etc/passwd",
        "xl_model_weights/a",
        "",
    ],
)
def test_members_that_a_plain_network_lacks_are_refused(archive, tmp_path, name):
    assert "no part of a plain network" in refuse(save(tmp_path / "net.pt2", {**archive, name: b"x"}))


def test_one_top_folder_and_every_name_once(archive, tmp_path):
    path = save(tmp_path / "net.pt2", archive)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("other/models/model.json", archive[PROGRAM])
    assert "no part of a plain network" in refuse(path)
    path = save(tmp_path / "net.pt2", archive)
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("net/models/model.json", archive[PROGRAM])
    assert "twice" in refuse(path)


def test_compressed_members_are_refused(archive, tmp_path):
    packed = {**archive, "data/weights/weight_99": bytes(10**6)}
    assert "compressed" in refuse(save(tmp_path / "net.pt2", packed, compression=zipfile.ZIP_DEFLATED))


@pytest.mark.parametrize(
    "text",
    [
        "Symbol('s0', integer=True).__class__",
        "Symbol('__import__')",
        "Symbol('s0', integer=open('x'))",
        "Symbol(*['s0'])",
        "Symbol('s0', **{})",
        "Add('s0', 1)",
        "Float('open')",
        "Lambda(1)",
        "lambda: 1",
        "s0 if 1 else 2",
        "[1]",
        "f'{1}'",
        "S('1')",
        "sympify('1')",
        "x",
        "1; 2",
        "",
        "Add(Integer(1), ...)",
    ],
)
def test_sizes_are_functions_of_symbols_and_numbers(archive, tmp_path, text):
    def change(data):
        next(iter(graph(data)["tensor_values"].values()))["sizes"][0] = {"as_expr": {"expr_str": text, "hint": None}}

    assert "for a size" in refuse(save(tmp_path / "net.pt2", edit(archive, PROGRAM, change)))


@pytest.mark.parametrize(
    "name",
    [
        "torch.hub.load",
        "torch.ops.load_library",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.__class__.mro",
        "torch.ops.prim.Print.default",
        "torch.ops.higher_order.print",
        "_operator.methodcaller",
        "math.os",
        "#extension:op",
        "os.system",
    ],
)
def test_operators_are_those_that_compute(archive, tmp_path, name):
    def change(data):
        graph(data)["nodes"][0]["target"] = name

    assert "no plain operator" in refuse(save(tmp_path / "net.pt2", edit(archive, PROGRAM, change)))


@pytest.mark.parametrize("kind", ["collections.namedtuple", "collections.deque", "torch.Size", "asrnorm.Config"])
def test_containers_are_plain(archive, tmp_path, kind):
    def change(data):
        signature = data["graph_module"]["module_call_graph"][0]["signature"]
        signature["out_spec"] = signature["out_spec"].replace("builtins.list", kind)

    assert "takes or returns" in refuse(save(tmp_path / "net.pt2", edit(archive, PROGRAM, change)))


def test_keys_of_containers_are_names(archive, tmp_path):
    spec = [1, {"type": "builtins.dict", "context": "[\"a': x}, {'b\"]", "children_spec": []}]

    def change(data):
        data["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = json.dumps(spec)

    assert "for a name" in refuse(save(tmp_path / "net.pt2", edit(archive, PROGRAM, change)))


def test_objects_are_refused(archive, tmp_path):
    argument = {"as_custom_obj": {"name": "a", "class_fqn": "b"}}
    changed = edit(archive, PROGRAM, lambda data: graph(data)["inputs"].append(argument))
    assert "objects that are pickled" in refuse(save(tmp_path / "net.pt2", changed))


@pytest.mark.parametrize("old", ["conv2d", "images", "submod_1"])
def test_names_of_values_are_identifiers(archive, tmp_path, old):
    assert "for a name" in refuse(save(tmp_path / "net.pt2", rename(archive, old, "a = open('x', 'w'); b")))


@pytest.mark.parametrize("name", ["__class__.x", "a.__dict__", 'a"b', "a\\", "a\nb", "a{b"])
def test_names_of_tensors_are_harmless(archive, tmp_path, name):
    assert "for a name" in refuse(save(tmp_path / "net.pt2", rename(archive, "conv.weight", name)))


def test_a_program_of_another_form_is_one_line(archive, tmp_path):
    for number, data in enumerate(([], {}, {"graph_module": 1}, {"graph_module": {"graph": {"inputs": [{}]}}})):
        members = {**archive, PROGRAM: json.dumps(data).encode()}
        assert "that this torch can read" in refuse(save(tmp_path / f"{number}.pt2", members))
    members = {**archive, PROGRAM: b"[" * 100_000}
    assert "that this torch can read" in refuse(save(tmp_path / "deep.pt2", members))


@pytest.mark.parametrize("norm", ["asr", "bn", "bn_test", "in", "sn", "none"])
@pytest.mark.parametrize("batch", [None, 4])
def test_what_this_package_exports_still_loads(tmp_path, monkeypatch, norm, batch):
    for registry, name, entry in tiny_run.entries():
        monkeypatch.setitem(registry._entries, name, entry)
    run(tiny_run.tiny_config(norm=Choice(name=norm), steps=1, lambda_every=0), tmp_path / "run")
    finished = load_run(tmp_path / "run", device="cpu")
    path = export_run(finished, "torch-export", tmp_path / "net.pt2", batch=batch).path
    model = load_model(str(path), device="cpu")
    model.probe((8, 8))
    images = torch.rand(4, 3, 8, 8)
    with torch.no_grad():
        expected = finished.model(images)
    torch.testing.assert_close(model.predict(images), expected, rtol=1e-5, atol=1e-5)
    assert model.class_names == ("left", "middle", "right")


def test_what_torch_saves_still_loads(archive, tmp_path):
    path = save(tmp_path / "net.pt2", archive)
    model = load_model(str(path), device="cpu")
    model.probe((16, 16))
    images = torch.rand(5, 3, 24, 32)
    expected = torch.export.load(path).module()(images)["logits"]
    assert torch.equal(model.predict(images), expected)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_trust_loads_what_can_run_code(archive, tmp_path):
    marker = tmp_path / "marker"
    path = save(tmp_path / "net.pt2", guard(archive, marker))
    load_model(str(path), device="cpu", trust=True).probe((16, 16))
    assert marker.exists()
