"""Write the page of an audit and its numbers; `reporting/templates/audit.html` has the words and the style."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from asrnorm.audit import summary
from asrnorm.audit.chart import Line, curves, reliability
from asrnorm.audit.images import LabeledImages
from asrnorm.audit.paired import is_higher
from asrnorm.audit.result import Audit, ModelAudit, Scores, to_json
from asrnorm.audit.run import apply_operations
from asrnorm.audit.session import to_nchw, to_nhwc
from asrnorm.core.files import write_whole
from asrnorm.data.corruptions import corrupt
from asrnorm.data.suites.cifar10c import GROUPS
from asrnorm.reporting.page import render_page

PAGE, NUMBERS = "audit.html", "audit.json"
_TILES, _SEARCH_TILES = 4, 8  # pairs of images in a gallery
_TILE_SIDE = 112
_SMALL = 96  # images up to this side keep their pixels
_DARKEST = 0.55  # opacity of a cell that lost all accuracy

# Takes one image `(1, h, w, 3)` and its row; returns it as the model saw it.
Change = Callable[[NDArray[np.uint8], int], NDArray[np.uint8]]


def write_audit(audit: Audit, images: LabeledImages, out: Path) -> tuple[Path, Path]:
    """Write `audit.html`, one page with everything in it, and `audit.json`, all its numbers; return their paths."""
    models = audit.models
    names = " and ".join(model.name for model in models)
    facts = ", ".join(f"{model.name} {model.fingerprint}" for model in models)
    text = render_page(
        "audit.html",
        title=f"How {names} hold{'s' if len(models) == 1 else ''} up",
        footer=f"asrnorm {audit.version}; {facts}; images {audit.data_fingerprint}; seed {audit.seed}"
        + ("; corrupted as tensors" if audit.tensors else ""),
        audit=audit,
        summaries=summary.summarize(audit),
        warnings=summary.warnings(audit),
        margin=summary.margin(audit.num_images),
        overview=_overview(audit),
        **_corruption_charts(audit),
        corruption_table=corruption_table(audit),
        **_calibration(audit),
        attacks=_attacks(audit),
        searches=[_search(audit, model, images) for model in models],
        broken=[_broken(audit, name, color, images) for name in models[0].corruptions for color in range(len(models))],
    )
    write_whole(out / NUMBERS, json.dumps(to_json(audit), indent=1))
    write_whole(out / PAGE, text)
    return out / PAGE, out / NUMBERS


def _overview(audit: Audit) -> dict[str, Any]:
    hardest = max(audit.severities)
    rows, cases = [], []
    for model in audit.models:
        attack = min(model.attacks, key=model.attacks.__getitem__, default="")
        means = [_accuracy(model.under()), _accuracy(model.under(hardest))]
        values = [model.clean.accuracy, *means, model.search.scores.accuracy, model.attacks.get(attack)]
        rows.append((model.name, values))
        groups = ([model.clean], model.corrupted(), model.corrupted(hardest), [model.search.scores])
        right = [[scores.right for scores in group] for group in groups]
        cases.append([*right, [model.right_under_attack.get(attack, "")]])
    columns = ["clean", "corrupted", f"severity {hardest}", "worst tuple", "attack"]
    return {"columns": columns, "rows": rows, "best": find_best(cases, audit.num_images)}


def find_best(cases: Sequence[Sequence[Sequence[str]]], num_images: int) -> list[int | None]:
    """Return for each column which of two models is better by more than the paired interval; `None` for neither.

    `cases` has for each model and column the right images of every case that the number is a mean of.
    """
    if len(cases) != 2:
        return []
    return [
        0 if is_higher(one, other, num_images) else 1 if is_higher(other, one, num_images) else None
        for one, other in zip(*cases, strict=True)
    ]


def _accuracy(scores: Scores | None) -> float | None:
    return scores.accuracy if scores else None


def _corruption_charts(audit: Audit) -> dict[str, Any]:
    ticks, positions = list(map(str, audit.severities)), (0, *audit.severities)

    def draw_lines(names: Sequence[str] | None) -> list[Line]:
        lines = []
        for color, model in enumerate(audit.models):
            values = [_accuracy(model.under(level, names)) for level in audit.severities]
            lines.append(Line(model.name, [model.clean.accuracy, *values], color))
        return lines

    means = draw_lines(None)
    charts = []
    for name in audit.models[0].corruptions:
        title = name.replace("_", " ")
        description = f"accuracy under {title} by severity"
        lines = draw_lines([name])
        charts.append((title, curves(lines, ["0", *ticks], description, positions=positions, size=(190, 130))))
    mean_chart = curves(means, ["clean", *ticks], "mean accuracy by severity", positions=positions, title="severity")
    return {"means": means, "mean_chart": mean_chart, "corruption_charts": charts}


def corruption_table(audit: Audit) -> list[tuple[str, list[Any], list[str]]]:
    """Return the rows of each group of corruptions and of all, and the names of those that are not available."""
    table = []
    for group, names in GROUPS.items():
        present = [name for name in names if any(name in model.corruptions for model in audit.models)]
        absent = [name.replace("_", " ") for name in names if name in audit.not_available]
        entries = [(name.replace("_", " "), False, _rows(audit, [name])) for name in present]
        if present and (len(audit.models) > 1 or len(present) > 1):
            entries.append((f"all {group}", True, _rows(audit, present)))
        if entries or absent:
            table.append((group, entries, absent))
    return [*table, ("", [("all corruptions", True, _rows(audit, None))], [])]


def _rows(audit: Audit, names: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return a row per model: accuracy by severity and their mean, each with its shade if it is surely lower."""
    rows = []
    for model in audit.models:
        clean = model.clean.accuracy
        cells = []
        for level in (*audit.severities, None):  # the last is their mean
            value, right = _accuracy(model.under(level, names)), [one.right for one in model.corrupted(level, names)]
            is_lower = is_higher([model.clean.right], right, audit.num_images)
            cells.append((value, shade(value, clean) if is_lower else 0.0))
        rows.append({"name": model.name, "clean": clean, "cells": cells})
    return rows


def shade(value: float | None, clean: float) -> float:
    """Return the opacity of a cell, in proportion to the share of the clean accuracy that is lost."""
    return 0.0 if value is None else _DARKEST * max(0.0, clean - value) / max(clean, 1e-9)


def _calibration(audit: Audit) -> dict[str, Any]:
    rows, charts = [], []
    for color, model in enumerate(audit.models):
        by_level = {f"severity {level}": model.under(level) for level in audit.severities}
        for state, scores in {"clean": model.clean, **by_level}.items():
            if scores is not None:
                name = f"{model.name}, {state}" if len(audit.models) > 1 else state
                rows.append((name, scores, scores.accuracy + summary.overconfidence(scores)))
        for state, scores in {"clean": model.clean, "corrupted, all severities": model.under()}.items():
            if scores is not None:
                chart = reliability(scores.bins, f"reliability of {model.name}, {state}", color)
                charts.append((model.name, state, chart))
    return {"calibration": rows, "reliability_charts": charts}


def _attacks(audit: Audit) -> dict[str, Any] | None:
    names = next((list(model.attacks) for model in audit.models if model.attacks), [])
    if not names:
        return None
    levels = sorted({_radius(name) for name in names})
    lines, cases = [], []
    for color, model in enumerate(audit.models):
        cases.append([[model.clean.right], *([model.right_under_attack.get(name, "")] for name in names)])
        for kind in ("fgsm", "pgd"):
            found = {_radius(name): value for name, value in model.attacks.items() if name.startswith(kind)}
            if found:
                values = [model.clean.accuracy, *(found.get(level) for level in levels)]
                lines.append(Line(f"{model.name}, {kind.upper()}", values, color, dashed=kind == "fgsm"))
    ticks = ["clean", *(f"{level:g}" for level in levels)]
    return {
        "lines": lines,
        "chart": curves(lines, ticks, "accuracy under attack by radius", title="radius, in levels of 255"),
        "columns": ["clean", *map(summary.describe_attack, names)],
        "rows": [(model.name, [model.clean.accuracy, *map(model.attacks.get, names)]) for model in audit.models],
        "best": find_best(cases, audit.num_images),
    }


def _radius(attack: str) -> float:
    return float(attack.partition("-")[2])


def _search(audit: Audit, model: ModelAudit, images: LabeledImages) -> tuple[Any, ...]:
    search = model.search
    rows = [(one.name, [one.clean.accuracy, search.accuracy[one.name]]) for one in audit.models]

    def change(image: NDArray[np.uint8], _: int) -> NDArray[np.uint8]:
        return apply_operations(image, search.operations)

    tiles = _make_tiles(search.scores, images, model.classes, change, _SEARCH_TILES)
    return model, summary.describe_operations(model), rows, tiles


def _broken(audit: Audit, name: str, color: int, images: LabeledImages) -> tuple[Any, ...]:
    model = audit.models[color]
    levels = model.corruptions[name]
    # The mildest severity that breaks enough images to fill a row, or else the one that breaks most.
    level = max(levels, key=lambda level: (min(levels[level].num_broken, _TILES), -level))
    scores = levels[level]

    def change(image: NDArray[np.uint8], row: int) -> NDArray[np.uint8]:
        if audit.tensors:
            return to_nhwc(corrupt(to_nchw(image), name, severity=level, seed=audit.seed, indices=[row]))
        return corrupt(image, name, severity=level, seed=audit.seed, indices=[row])

    tiles = _make_tiles(scores, images, model.classes, change, _TILES)
    return name.replace("_", " "), color, model.name, level, scores, tiles


def _make_tiles(
    scores: Scores, images: LabeledImages, names: Mapping[int, str], change: Change, most: int
) -> list[dict[str, Any]]:
    """Return pairs of images, clean and changed, with the wrong answer and its confidence."""
    tiles = []
    for row, guess, confidence in ((int(row), int(guess), one) for row, guess, one in scores.broken[:most]):
        image = images.images[row][None]
        tiles.append(
            {
                "before": _encode(image[0]),
                "after": _encode(change(image, row)[0]),
                "small": max(image.shape[1:3]) <= _SMALL,
                "truth": images.classes[int(images.labels[row])],
                "answer": names.get(guess, f"output {guess}"),
                "confidence": confidence,
            }
        )
    return tiles


def _encode(pixels: NDArray[np.uint8]) -> str:
    """Return an image as a data URI, small ones pixel by pixel."""
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    kind = "png" if max(picture.size) <= _SMALL else "jpeg"
    if kind == "jpeg":
        picture.thumbnail((_TILE_SIDE, _TILE_SIDE), Image.Resampling.LANCZOS)
    buffer = BytesIO()
    picture.save(buffer, kind, quality=82)  # PNG takes no quality
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
