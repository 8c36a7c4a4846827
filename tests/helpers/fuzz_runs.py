"""Kinds of `helpers.fuzz` that read whole run folders: checkpoints, results, reports."""

import contextlib
import json
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path

import torch

from asrnorm.core.errors import AsrnormError
from helpers import tiny_run
from helpers.fuzz_calls import call
from helpers.fuzz_files import ENVIRONMENT
from helpers.fuzz_kind import kind
from helpers.made_up_run import make_up_runs
from helpers.mutation import mutate_bytes, mutate_json, mutate_value, mutate_yaml
from helpers.small_study import small_study


@cache
def finished_run():
    """Train a toy for a few steps, once; return its config and folder."""
    from asrnorm.training import environment, run

    environment.find_commit = cache(environment.find_commit)  # which asks Git
    tiny_run.install()
    choice = tiny_run.Choice(name="toy_grow", args={"interval": 2, "rounds": 1})
    config, folder = tiny_run.tiny_config(steps=4, method=choice, checkpoint_every=2), Path(tempfile.mkdtemp()) / "run"
    run(config, folder)
    return config, folder


@kind(2)
def checkpoint(folder, draw, state):

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


@kind(2)
def run_folder(folder, draw, state):

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
