"""Damaged files and hostile calls: every reader returns or raises one line of its own errors, soon.

`python -m helpers.fuzz INPUTS SECONDS SEED [KIND...]` runs that many inputs, as many of every kind as its cost allows,
or stops when the time is over; it prints the counts as JSON, and every input that ended otherwise with its number.
"""

import contextlib
import io
import json
import logging
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from functools import cache
from pathlib import Path
from unittest import mock

from asrnorm.core.config import content_hash, dump_config, load_config, override, run_name
from asrnorm.core.errors import AsrnormError
from asrnorm.core.results import format_result, read_environment, read_log_rows, read_result, seal
from helpers.made_up_run import make_up_result, make_up_runs
from helpers.mutation import HOSTILE, mutate_bytes, mutate_json, mutate_value, mutate_yaml
from helpers.sample_config import make
from helpers.small_study import small_study

SECONDS = 20  # for one input: nothing here takes a tenth of that
MEMORY = 12 << 30  # bytes of addresses
KINDS = {}


class Kind:
    """A kind of input: `prepare` makes what all inputs share, `attempt` draws one input and reads it."""

    def __init__(self, function, weight):
        self.function, self.weight, self.state = function, weight, None

    def attempt(self, folder, draw):
        if self.state is None:
            self.state = {}
        self.function(folder, draw, self.state)


def kind(weight=10):
    """Register an attempt; the weight is its share of the inputs."""

    def register(function):
        KINDS[function.__name__] = Kind(function, weight)
        return function

    return register


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


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

    loaded = load_config(write(folder / "config.yaml", mutate_yaml(dump_config(make()).encode(), draw)))
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


@cache
def finished_run():
    """Train a toy for a few steps, once; return its config and folder."""
    from asrnorm.training import run
    from helpers import tiny_run

    tiny_run.install()
    choice = tiny_run.Choice(name="toy_grow", args={"interval": 2, "rounds": 1})
    config, folder = tiny_run.tiny_config(steps=4, method=choice, checkpoint_every=2), Path(tempfile.mkdtemp()) / "run"
    run(config, folder)
    return config, folder


@kind(1)
def checkpoint(folder, draw, state):
    import shutil

    import torch

    from asrnorm.training import run
    from asrnorm.training.checkpoint import pack, unpack

    config, whole = finished_run()
    shutil.copytree(whole, folder / "run")
    (folder / "run" / "result.json").unlink()
    (folder / "run" / "checkpoints" / "previous.pt").unlink(missing_ok=True)
    path = folder / "run" / "checkpoints" / "last.pt"
    if draw.random() < 0.3:
        path.write_bytes(mutate_bytes(path.read_bytes(), draw))
    else:
        forged = mutate_value(unpack(path), draw)
        with warnings.catch_warnings(action="ignore"), contextlib.suppress(TypeError, RuntimeError):
            path.write_bytes(pack(forged))
    with torch.random.fork_rng():
        run(config, folder / "run")


@kind(1)
def run_folder(folder, draw, state):
    import shutil

    from asrnorm.training import load_run, run

    config, whole = finished_run()
    shutil.copytree(whole, folder / "run")
    name = draw.choice(("result.json", "env.json", "log.jsonl", "config.yaml", "model.safetensors"))
    path = folder / "run" / name
    mutate = {".yaml": mutate_yaml, ".safetensors": mutate_bytes}.get(path.suffix, mutate_json)
    path.write_bytes(mutate(path.read_bytes(), draw))
    with contextlib.suppress(AsrnormError):
        load_run(folder / "run", device="cpu")
    run(config, folder / "run")


@kind(1)
def report(folder, draw, state):
    """One damaged run among others: the report of all is written."""
    import shutil

    from asrnorm.cli.main import main

    if not state:
        state["folder"] = Path(tempfile.mkdtemp()) / "runs"
        make_up_runs(small_study(), state["folder"], seeds=(0,))
        for one in state["folder"].iterdir():
            (one / "env.json").write_text(json.dumps(ENVIRONMENT))
    shutil.copytree(state["folder"], folder / "runs")
    path = draw.choice([path for path in sorted((folder / "runs").rglob("*")) if path.is_file()])
    path.write_bytes((mutate_yaml if path.suffix == ".yaml" else mutate_json)(path.read_bytes(), draw))
    status, said = call(main, ["report", str(folder / "runs")])
    assert status == 0, said


NOTHING = "no/such/run"
CALLS = (
    *([word, NOTHING] for word in ("train", "evaluate", "predict", "report", "reproduce", "export", "audit", "list")),
    *(["data", "fetch", "no-such-set"], ["bench", "no-such-bench"], ["doctor", "--help"], ["no-such-command"], []),
)
OPTIONS = ("--set", "--scale", "--seed", "--out", "--config", "--source", "--target", "--json", "--as", "--classes")
OPTIONS += ("--format", "--seeds", "--suite", "--data", "--steps", "--batch", "--size", "--x", "-", "--")


@kind(1)
def command_line(folder, draw, state):
    """Calls that cannot start any work: what they name does not exist, or they are dry runs."""
    from asrnorm.cli.main import main

    before = Path.cwd()
    os.chdir(folder)
    try:
        if draw.random() < 0.5:
            words = ["train", "digits.erm_bn", "--scale", "smoke", "--dry-run"]
            for _ in range(draw.choice((1, 2))):
                words += ["--set", f"{draw.choice(FIELDS)}={draw.choice(TEXTS)}"]
        else:
            words = [*draw.choice(CALLS), *draw.choices((*OPTIONS, *TEXTS), k=draw.randrange(5))]
        words = [word.replace("\0", "") for word in words]
        status, said = call(main, words)
        assert status in (0, 1, 2), words
        assert "Traceback" not in said, said
        assert "a bug in asrnorm" not in said, f"{words}: {said}"
    finally:
        os.chdir(before)


def call(main, words):
    """Run the command line in this process; return its status and what it printed."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main(words)
        out.flush()
    return status, out.buffer.getvalue().decode("utf-8", "replace")


def attempt(name, number, seed):
    """Run one input; return `None`, or how it ended otherwise than it may."""
    draw = random.Random(f"{seed} {name} {number}")
    with tempfile.TemporaryDirectory() as folder:
        signal.alarm(SECONDS)
        try:
            KINDS[name].attempt(Path(folder), draw)
        except AsrnormError as error:
            return None if len(str(error)) < 20_000 else f"a long message: {error!r:.300}"
        except Exception as error:
            signal.alarm(0)
            frames = traceback.extract_tb(error.__traceback__)
            own = [f for f in frames if "asrnorm" in f.filename] or list(frames)
            return f"{type(error).__name__}: {error!s:.300} ({Path(own[-1].filename).name}:{own[-1].lineno})"
        finally:
            signal.alarm(0)
    return None


def ring(number, frame):
    raise TimeoutError(f"more than {SECONDS} s")


def main(inputs, seconds, seed, names):
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGALRM, ring)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    os.environ.setdefault("ASRNORM_CACHE", tempfile.mkdtemp())
    chosen = names or list(KINDS)
    total = sum(KINDS[name].weight for name in chosen)
    counts, failures, until = dict.fromkeys(chosen, 0), {}, time.monotonic() + seconds
    done = 0
    with Path(os.devnull).open("w") as null, contextlib.redirect_stderr(null):
        while done < inputs and time.monotonic() < until:
            for name in chosen:
                for _ in range(KINDS[name].weight):
                    found = attempt(name, counts[name], seed)
                    if found is not None:
                        failures.setdefault(f"{name}: {found}", []).append(counts[name])
                    counts[name] += 1
            done += total
    report = {"inputs": sum(counts.values()), "seconds": round(time.monotonic() - until + seconds), "kinds": counts}
    sys.stdout.write(json.dumps({**report, "failures": {k: v[:5] for k, v in failures.items()}}, indent=1) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:]))
