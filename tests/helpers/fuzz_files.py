"""Kinds of `helpers.fuzz` that read one file: results, logs, configs, studies, caches, images, archives, weights."""

import contextlib
import io
import json
from unittest import mock

from asrnorm.core.config import content_hash, dump_config, load_config, override, run_name
from asrnorm.core.errors import AsrnormError
from asrnorm.core.results import format_result, read_environment, read_log_rows, read_result, seal
from helpers.fuzz_kind import kind, write
from helpers.made_up_run import make_up_result
from helpers.mutation import HOSTILE, mutate_bytes, mutate_json, mutate_yaml
from helpers.sample_config import make
from helpers.small_study import small_study

CONFIG = dump_config(make()).encode()
RESULT = make_up_result(small_study().rows[2].cells["SVHN"].runs[0].config(0, "smoke"))
ENVIRONMENT = {
    "commit": "a" * 40,
    "day": "2026-11-16",
    "torch": "2.9",
    "device": "cpu",
    "gpu": None,
    "classes": ["a", "b"],
    "images": 4,
    "listing": "c" * 16,
    "sizes": "d" * 16,
    "weights": "e" * 16,
    "edition": "",
    "targets": "f",
    "resumed": [{"commit": "b" * 40, "gpu": "H200"}],
}
ROW = {"step": 5, "loss": 1.5, "accuracy": 0.5, "lr": 0.1, "lambdas": {"norm1": {"mu": 0.1, "sigma": 0.2}}}
LOG = "".join(f"{json.dumps({**ROW, 'step': step})}\n" for step in (5, 10, 15)).encode()


@kind()
def result(folder, draw, state):
    read_result(write(folder / "result.json", mutate_json(format_result(RESULT).encode(), draw)))


@kind()
def sealed_result(folder, draw, state):
    found = read_result(write(folder / "result.json", mutate_json(format_result(seal(RESULT)).encode(), draw)))
    same = {**found.__dict__, "origin": {}, "values_sha256": ""} == {**RESULT.__dict__, "values_sha256": ""}
    assert same or not found.values_sha256, "a sealed result was read with other values"


@kind()
def kept_lines(folder, draw, state):
    from asrnorm.studies.store import find_results, read_lines

    line = format_result(RESULT).replace("\n", " ").encode() + b"\n"
    path = write(folder / "table1.jsonl", mutate_json(2 * line, draw))
    find_results(folder / "none", folder)
    read_lines(path)


@kind()
def environment(folder, draw, state):
    from asrnorm.studies.store import read_origin
    from asrnorm.training.environment import compare_source, record_environment

    path = write(folder / "env.json", mutate_json(json.dumps(ENVIRONMENT).encode(), draw))
    read_environment(path)
    read_origin(path)
    with contextlib.suppress(AsrnormError):
        compare_source(path, ENVIRONMENT)
    record_environment(path, ENVIRONMENT)


@kind()
def log(folder, draw, state):
    from asrnorm.launch.queue import last_step
    from asrnorm.reporting.runs import curve, lambda_curves, make_sparkline
    from asrnorm.studies.store import format_curves

    path = write(folder / "log.jsonl", mutate_json(LOG, draw))
    last_step(path)
    rows = read_log_rows(path)
    lambda_curves(rows)
    make_sparkline([curve(rows, "loss")], "loss")
    format_curves(rows)


@kind()
def curves(folder, draw, state):
    from asrnorm.reporting.runs import curve, lambda_curves, make_sparkline
    from asrnorm.studies.store import format_curves, read_log

    text = format_curves([json.loads(line) for line in LOG.splitlines()])
    write(folder / "curves.csv", mutate_bytes(text.encode(), draw))
    rows = read_log(folder)
    lambda_curves(rows)
    make_sparkline([curve(rows, "accuracy")], "accuracy")


@kind()
def config(folder, draw, state):
    from asrnorm.training.assembly import check_names

    loaded = load_config(write(folder / "config.yaml", mutate_yaml(CONFIG, draw)))
    content_hash(loaded)
    dump_config(loaded)
    run_name(loaded)
    check_names(loaded)


TEXTS = [
    *(json.dumps(value) for value in HOSTILE if not (isinstance(value, float) and value != value)),
    *("!!python/name:os.system", "!!int x", "!!timestamp x", "!!bool x", "!!binary x", "!!set {a}", "1:1:1", "&a *a"),
    *("[1, 2", "2024-02-30", "10**20", "1e400", "-1e-400", "0x" + "f" * 400, "~", "{a: 1}", "photo", ".inf", "1_0"),
]
FIELDS = ("steps", "seed", "optim.lr", "method.interval", "suite.source", "suite", "norm", "norm.eps", "model.width")
FIELDS += ("weights", "augment", "precision", "evaluate_batch", "selection", "optim", "x", "", ".", "suite.root")


@kind()
def assignment(folder, draw, state):
    changes = {draw.choice(FIELDS): draw.choice(TEXTS) for _ in range(draw.choice((1, 2)))}
    content_hash(override(make(), changes))


@kind()
def study(folder, draw, state):
    from asrnorm.studies.loader import TABLES, load_study
    from asrnorm.studies.plan import iterate_specs

    source = draw.choice(sorted(TABLES.glob("*.yaml")))
    found = load_study(write(folder / source.name, mutate_yaml(source.read_bytes(), draw)))
    for spec in list(iterate_specs(found))[:3]:
        spec.config(0, "smoke")


@kind()
def class_map(folder, draw, state):
    from asrnorm.audit.images import map_classes

    content = draw.choice((["a", "b"], {"a": 0, "b": 1}, {"0": "a", "1": ["n1", "b"]}))
    path = write(folder / "classes.json", mutate_json(json.dumps(content).encode(), draw))
    map_classes(["a", "b"], 2, file=path)


@kind()
def card(folder, draw, state):
    from asrnorm.audit.load import _is_normalized, _read_card

    content = {"sha256": "x", "classes": ["a"], "input": {"normalization": "inside"}}
    write(folder / "m.onnx", b"")
    write(folder / "m.onnx.json", mutate_json(json.dumps(content).encode(), draw))
    with mock.patch("hashlib.sha256", return_value=mock.Mock(hexdigest=lambda: "x")):
        _is_normalized(_read_card(folder / "m.onnx"))


@kind()
def audit_cache(folder, draw, state):
    from asrnorm.audit.session import ResultCache

    path = folder / "cache.jsonl"
    ResultCache(path).put("key", "part", {"accuracy": 0.5})
    path.write_bytes(mutate_json(path.read_bytes().strip() + b"\n", draw))
    assert ResultCache(path).get("key", "part") in (None, {"accuracy": 0.5})


@kind(5)
def cache_entry(folder, draw, state):
    import numpy as np

    from asrnorm.data import cache

    def open_it():
        return cache.open_entry("e", fingerprint={"a": [1]}, build=lambda w: w.add("x", np.ones(3)), folder=folder)

    open_it()
    path = folder / "e" / "entry.json"
    path.write_bytes(mutate_json(path.read_bytes(), draw))
    cache._verified.clear()
    assert open_it()["x"].tolist() == [1, 1, 1]


@kind()
def records(folder, draw, state):
    from asrnorm.data.corruptions.generation import _Record
    from asrnorm.data.download.content import read_record
    from asrnorm.data.download.mirrors import PartialFile
    from asrnorm.training.run import _read_choice

    choice = {"step": 5, "score": 0.5, "held_out": 3, "seconds": 1.5}
    _read_choice(write(folder / "choice.json", mutate_json(json.dumps(choice).encode(), draw)), 10)
    content = json.dumps({"schema": 1, "files": {"fog": {"md5": "a", "seed": 0, "images": "b"}}}).encode()
    path = write(folder / "generated.json", mutate_json(content, draw))
    read_record(path)
    write(folder / "x.part.json", mutate_json(json.dumps({"url": "u", "validator": "v"}).encode(), draw))
    PartialFile(folder / "x").validator("u")
    _Record(path, 0, "b").check("fog")


@kind(20)
def data_file(folder, draw, state):
    from helpers.reader_formats import FORMATS

    read, data, name, check = FORMATS[draw.choice(list(FORMATS))]
    check(read(write(folder / name, mutate_bytes(data, draw))))


@kind(5)
def image(folder, draw, state):
    from PIL import Image

    from asrnorm.data.image import read_image

    suffix = draw.choice((".png", ".jpg", ".gif", ".bmp"))
    if suffix not in state:
        buffer = io.BytesIO()
        Image.effect_noise((16, 16), 50).save(buffer, {".jpg": "JPEG"}.get(suffix, suffix[1:].upper()))
        state[suffix] = buffer.getvalue()
    read_image(write(folder / f"a{suffix}", mutate_bytes(state[suffix], draw)), size=(8, 8))


@kind(3)
def archive(folder, draw, state):
    from asrnorm.data.download.archive import unpack
    from helpers.archive_file import make_tar, make_zip

    for made, name in ((make_zip, "a.zip"), (make_tar, "a.tgz")):
        if name not in state:
            made(folder / name)
            state[name] = (folder / name).read_bytes()
    name = draw.choice(list(state))
    (folder / "out").mkdir()
    unpack(write(folder / name, mutate_bytes(state[name], draw)), folder / "out", lambda name: name)


@kind(5)
def weights(folder, draw, state):
    import torch

    from asrnorm.models.weights import pack_state, read_state

    if not state:
        tensors = {"a.weight": torch.ones(3, 2), "a.bias": torch.zeros(2)}
        buffer, old = io.BytesIO(), io.BytesIO()
        torch.save({"state_dict": tensors}, buffer)
        torch.save(tensors, old, _use_new_zipfile_serialization=False)
        state.update({"a.safetensors": pack_state(tensors), "a.pth": buffer.getvalue(), "b.pth": old.getvalue()})
    name = draw.choice(list(state))
    read_state(write(folder / name, mutate_bytes(state[name], draw)))


@kind(5)
def statistics(folder, draw, state):
    """The arrays that t-SNE is drawn from."""
    import numpy as np

    from asrnorm.studies.archive import reduce_statistics

    if not state:
        buffer = io.BytesIO()
        np.savez(buffer, domain=np.repeat(["a", "b"], 5), mu_first=np.random.default_rng(0).normal(size=(10, 4)))
        state["data"] = buffer.getvalue()
    reduce_statistics(write(folder / "statistics.npz", mutate_bytes(state["data"], draw)))


@kind(5)
def aliases(folder, draw, state):
    from asrnorm.data.class_names import _read_aliases

    _read_aliases(write(folder / "aliases.yaml", mutate_yaml(b"hund: dog\nphoto: {katze: cat, 3: horse}\n", draw)))


@kind(3)
def package(folder, draw, state):
    """CIFAR-10 as a package of a registry has it: PNGs of rows, and labels in JSON."""
    import numpy as np
    from PIL import Image

    from asrnorm.data.download.packages import BATCHES, LABELS, rebuild_batches

    if not state:
        buffer = io.BytesIO()
        Image.fromarray(np.zeros((2, 1024, 3), np.uint8)).save(buffer, "PNG")
        state["png"] = buffer.getvalue()
    files = {f"{batch}.png": state["png"] for batch in BATCHES}
    files |= {LABELS[0]: json.dumps([1] * 10).encode(), LABELS[1]: b"[0, 9]"}
    name = draw.choice(list(files))
    files[name] = (mutate_bytes if name.endswith(".png") else mutate_json)(files[name], draw)
    for name, data in files.items():
        write(folder / "package" / name, data)
    rebuild_batches(folder / "package", folder / "out", rows=2)


NAMES = ("dog", "cat", "a b", ".hidden", "x.png", "=1+1", "<b>", "\x1b[2J", "a\nb", "\udcff", "ÄÖ", "CON", "..x", "-")


@kind(5)
def image_folder(folder, draw, state):
    """The user's own images: files and folders with hostile names and content, and an option or two."""
    from PIL import Image

    from asrnorm.data import create_suite

    if not state:
        buffer = io.BytesIO()
        Image.effect_noise((8, 8), 50).save(buffer, "PNG")
        state["png"] = buffer.getvalue()
    root = folder / "photos"
    for _ in range(draw.choice((1, 4, 8))):
        parts = [draw.choice(("day", "night", *NAMES)) for _ in range(draw.choice((0, 1, 2, 2, 2, 3)))]
        path = root.joinpath(*parts, draw.choice(("1.png", "2.png", "3.PNG", "x.jpg", "notes.txt", *NAMES)))
        data = state["png"] if draw.random() < 0.8 else draw.choice((b"", mutate_bytes(state["png"], draw)))
        with contextlib.suppress(OSError):  # a folder of that name, or a file where a folder should be
            write(path, data)
    options = {"root": str(root), "source": draw.choice(("day", "day", *NAMES, None)), "size": 8}
    if draw.random() < 0.3:
        options[draw.choice(("aliases", "unknown", "broken", "source", "target", "size"))] = draw.choice(HOSTILE)
    suite = create_suite("folder", **options)
    suite.parts()
    suite.load_train()
    suite.load_validation()
