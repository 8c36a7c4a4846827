"""Kinds of `helpers.fuzz` that call the public Python functions with hostile arguments, and networks in files."""

import contextlib
import io
import json
import tempfile
import warnings
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import nn

import asrnorm
from asrnorm.conversion.blocks import BLOCKS
from asrnorm.core.config import override
from asrnorm.data import SUITES
from asrnorm.data.augment.named import AUGMENTATIONS
from asrnorm.methods import METHODS
from asrnorm.models import MODELS
from asrnorm.norms import NORMS
from asrnorm.recipes import list_recipes
from helpers.audited import ColorNet
from helpers.fuzz_files import FIELDS
from helpers.fuzz_kind import kind, write
from helpers.mutation import HOSTILE, mutate_bytes, mutate_json

VALUES = (*HOSTILE, "asr", "bn", "all", "early", 1, 2, 3, 8, 0.5, 1e-5, "instance", "relu", "cpu")
WORDS = tuple(value for value in VALUES if isinstance(value, str))
LAYERS = (*WORDS, ["1"], ["1", "3"], ["9"], [], [""], ["1", "1"])
OTHERS = ("device", "dtype", "norm_layer")  # torch's own, which no config sets
REGISTRIES = {"norm": NORMS, "method": METHODS, "suite": SUITES, "model": MODELS}
TOO_MUCH = (
    "allocate",
    "Overflow when unpacking",
    "must share same datatype",
    "eps must be positive",
    "out of memory",
    "Storage size",
    "too large",
    "exceeds",
    "numel: integer multiplication",
)


@contextlib.contextmanager
def much_memory_is_an_answer():
    """Leave it to torch to say that a layer of two billion features does not fit, and to the system what a path is."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except (MemoryError, OSError):
        pass
    except (RuntimeError, ValueError, TypeError) as error:
        if not any(words in str(error) for words in TOO_MUCH):
            raise


def options_of(registry, name, draw):
    """Return hostile values for one or two options of an entry."""
    known = [option for option in registry.options(name) if option not in OTHERS]
    return {option: draw.choice(VALUES) for option in draw.sample(known, min(len(known), draw.choice((0, 1, 1, 2))))}


def some(names, draw):
    return draw.choice(list(names)) if draw.random() < 0.9 else draw.choice(WORDS)


@kind(10)
def norm_call(folder, draw, state):
    name = draw.choice(NORMS.names())
    features = 8 if draw.random() < 0.8 else draw.choice([value for value in VALUES if value != 2**31])
    shapes = ((2, 8, 4, 4), (2, 8), (2, 8, 5), (1, 8, 1, 1), (0, 8, 2, 2), (2, 8, 0, 4), (2, 7, 4, 4), (8,), ())
    dtype = draw.choice((torch.float32, torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.complex64))
    with much_memory_is_an_answer():
        layer = asrnorm.create_norm(name, features, **options_of(NORMS, name, draw))
        layer.train(draw.random() < 0.5)(torch.ones(draw.choice(shapes), dtype=dtype))


@kind(10)
def run_config(folder, draw, state):
    """What `train` does with a config before it reads any data."""
    from asrnorm.training.assembly import check_config, rehearse

    config = asrnorm.recipe(draw.choice(list_recipes()), scale="smoke")
    changes = {}
    for _ in range(draw.choice((1, 1, 2))):
        field, registry = draw.choice(tuple(REGISTRIES.items()))
        name = getattr(config, field).name
        options = [option for option in registry.options(name) if option not in OTHERS]
        field += f".{draw.choice(options)}" if options and draw.random() < 0.8 else ""
        changes[draw.choice((field, field, *FIELDS))] = draw.choice(VALUES)
    if draw.random() < 0.2:
        name = draw.choice(AUGMENTATIONS.names())
        changes["augment"] = [{"name": name, **options_of(AUGMENTATIONS, name, draw)}]
    if draw.random() < 0.2:
        name = draw.choice(BLOCKS.names())
        changes["blocks"] = [{"name": name, **options_of(BLOCKS, name, draw)}]
    with much_memory_is_an_answer(), mock.patch.dict("os.environ", ASRNORM_DATA=str(folder)):
        changed = override(config, changes)
        check_config(changed)
        rehearse(changed)
        asrnorm.create_suite(changed.suite.name, **changed.suite.args).parts()


@kind(5)
def model_call(folder, draw, state):
    name = draw.choice(("digits_convnet", "wrn_16_4"))
    words = {"norm": some(NORMS.names(), draw), "norm_options": draw.choice((None, {}, {"eps": 1}, {"": None}))}
    words |= {"layers": draw.choice(LAYERS)} if draw.random() < 0.2 else {}
    words |= {"weights": draw.choice(WORDS)} if draw.random() < 0.1 else {}
    with much_memory_is_an_answer(), torch.device("meta"):
        asrnorm.create_model(name, **words, **options_of(MODELS, name, draw))


@kind(5)
def augment_call(folder, draw, state):
    name = draw.choice(AUGMENTATIONS.names())
    entry = {"name": name, **options_of(AUGMENTATIONS, name, draw)}
    images = draw.choice((torch.rand(2, 3, 8, 8), torch.rand(2, 3, 1, 1), torch.rand(3, 8, 8), torch.ones(0, 3, 8, 8)))
    what = draw.choice((name, [entry], [entry], [name, entry], draw.choice(WORDS)))
    with much_memory_is_an_answer():
        asrnorm.augment(images, what, seed=draw.choice((0, 0, *VALUES)), step=draw.choice((0, 0, *VALUES)))


@kind(5)
def corrupt_call(folder, draw, state):
    images = np.full(draw.choice(((2, 8, 8, 3), (2, 8, 8, 3), (0, 8, 8, 3), (1, 1, 1, 3), (8, 8), ())), 100, np.uint8)
    if draw.random() < 0.3:
        images = torch.rand(2, 3, 8, 8)
    name = some(("gaussian_noise", "brightness", "contrast", "pixelate", "saturate", "impulse_noise", "fog"), draw)
    words = {"severity": 3, "seed": 0, draw.choice(("severity", "seed")): draw.choice(VALUES)}
    with much_memory_is_an_answer():
        asrnorm.corrupt(images, name, **words)


@kind(5)
def convert_call(folder, draw, state):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.GroupNorm(2, 8), nn.Linear(4, 2))
    layers = {"layers": draw.choice(LAYERS)} if draw.random() < 0.5 else {}
    with much_memory_is_an_answer():
        if draw.random() < 0.3:
            block = draw.choice(BLOCKS.names())
            asrnorm.insert(model, block, **layers, **options_of(BLOCKS, block, draw))
        else:
            name = draw.choice(NORMS.names())
            asrnorm.convert(model, some([name], draw), **layers, **options_of(NORMS, name, draw))
        model(torch.ones(2, 3, 6, 6))
        asrnorm.conversion_summary(model)
        asrnorm.revert(model)


@kind(5)
def saved_network(folder, draw, state):
    """A file of `asrnorm.save`, and a folder of `save_pretrained`, with damage in bytes or in what was converted."""
    if not state:
        with tempfile.TemporaryDirectory() as made:
            net = asrnorm.create_model("digits_convnet", norm="asr", num_classes=3)
            asrnorm.save(net, Path(made, "net.safetensors"))
            state["net"] = Path(made, "net.safetensors").read_bytes()
            layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
            asrnorm.save(asrnorm.convert(layers, "asr"), Path(made, "own.safetensors"))
            state["own"] = Path(made, "own.safetensors").read_bytes()
    name = draw.choices(list(state), (1, 9))[0]  # the one has 9 MB, which are hashed
    data = state[name]
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    if draw.random() < 0.5:
        said = mutate_json(header["__metadata__"]["asrnorm"].encode(), draw)
        header["__metadata__"]["asrnorm"] = said.decode("utf-8", "replace")
        text = json.dumps(header).encode()
        data = len(text).to_bytes(8, "little") + text + data[8 + length :]
    else:
        data = mutate_bytes(data, draw)
    path = write(folder / "model.safetensors", data)
    model = None if name == "net" else nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    with much_memory_is_an_answer():
        draw.choice((asrnorm.load, lambda path, model: asrnorm.from_pretrained(path.parent, model=model)))(path, model)


@kind(1)
def exported_network(folder, draw, state):
    """A `.pt2` file with damage in its archive or in one of its JSON members."""
    from asrnorm.audit.load import load_model

    if not state:
        buffer = io.BytesIO()
        torch.export.save(torch.export.export(ColorNet().eval(), (torch.rand(2, 3, 8, 8),)), buffer)
        state["data"] = buffer.getvalue()
    data = (edit_member if draw.random() < 0.8 else mutate_bytes)(state["data"], draw)
    with much_memory_is_an_answer():
        load_model(str(write(folder / "net.pt2", data)), device="cpu")


def edit_member(data, draw):
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        chosen = draw.choice([name for name in old.namelist() if name.endswith(".json")] * 2 + old.namelist())
        for name in old.namelist():
            content = old.read(name)
            if name == chosen:
                content = (mutate_json if name.endswith(".json") else mutate_bytes)(content, draw)
            new.writestr(name, content)
    return out.getvalue()


@kind(5)
def onnx_file(folder, draw, state):
    from asrnorm.audit.load import load_model

    if not state:
        state["data"] = make_onnx()
    with much_memory_is_an_answer():
        load_model(str(write(folder / "net.onnx", mutate_bytes(state["data"], draw))), device="cpu")


def make_onnx():
    """Return the mean over the pixels as an ONNX file."""
    from onnx import TensorProto, helper

    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, 8, 8])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 3])
    pool = helper.make_node("GlobalAveragePool", ["images"], ["pooled"])
    flat = helper.make_node("Flatten", ["pooled"], ["logits"])
    model = helper.make_model(
        helper.make_graph([pool, flat], "net", [images], [logits]), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 8
    return model.SerializeToString()
