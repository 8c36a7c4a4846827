"""The card of an exported file, `<file>.json`: what to feed it, what comes out, and where it comes from."""

import hashlib
from typing import Any

import torch

import asrnorm
from asrnorm.config import content_hash
from asrnorm.exporting.base import Subject
from asrnorm.exporting.onnx_file import OUTPUT
from asrnorm.exporting.trace import INPUT
from asrnorm.exporting.verify import Verdict, count_parameters

SCHEMA = 1
# Norms that compute with the statistics of the batch at hand when they are used, too.
_BATCH_NORMS = frozenset({"bn_test"})


def describe_file(subject: Subject, file_format: str, name: str, content: bytes, verdict: Verdict) -> dict[str, Any]:
    """Return the card of a file.

    Args:
        subject: what it holds.
        file_format: its name in the registry.
        name: of the file.
        content: of the file, to be hashed.
        verdict: how it was tried.
    """
    run, batch = subject.run, subject.batch or "batch"
    dtype = str(next(subject.model.parameters()).dtype).removeprefix("torch.")
    return {
        "schema": SCHEMA,
        "format": file_format,
        "file": name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "classes": list(run.classes),
        "input": {
            "name": INPUT,
            "shape": [batch, 3, *subject.size],
            "layout": "NCHW",
            "dtype": dtype,
            "color": "RGB",
            "range": [0.0, 1.0],
            "normalization": "inside",
            "resize": "bilinear",
        },
        "output": {"name": OUTPUT, "shape": [batch, len(run.classes)], "dtype": dtype, "kind": "logits"},
        "looks_at_other_images": run.config.norm.name in _BATCH_NORMS,
        "num_parameters": count_parameters(subject.model),
        "run": {
            "recipe": run.config.recipe,
            "scale": run.config.scale,
            "seed": run.config.seed,
            "config_hash": content_hash(run.config),
        },
        "verified": {
            "relative_error": verdict.relative_error,
            "tolerance": verdict.tolerance,
            "batches": list(verdict.batches),
        },
        "made_by": {"asrnorm": asrnorm.__version__, "torch": torch.__version__},
    }
