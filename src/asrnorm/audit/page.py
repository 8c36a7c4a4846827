"""The page of an audit, and its numbers in a file."""

import html as markup
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asrnorm.audit import summary
from asrnorm.audit.chart import Line, curves, legend, reliability
from asrnorm.audit.gallery import choose_severity, gallery
from asrnorm.audit.images import LabeledImages
from asrnorm.audit.result import Audit, ModelAudit, Scores, write_json
from asrnorm.audit.run import apply_operations
from asrnorm.audit.style import STYLE
from asrnorm.audit.table import corruption_table, number_table
from asrnorm.data.corruptions import corrupt
from asrnorm.reporting import page

PAGE, NUMBERS = "audit.html", "audit.json"
_SEARCH_SHOWN = 8


def write_audit(audit: Audit, images: LabeledImages, out: Path) -> tuple[Path, Path]:
    """Write `audit.html`, one page with everything in it, and `audit.json`, all its numbers.

    Args:
        audit: what was found.
        images: the images it was found on.
        out: folder of the files.

    Returns:
        The page and the numbers.

    Raises:
        StorageError: the folder cannot be written.
    """
    names = " and ".join(model.name for model in audit.models)
    parts = [
        *_summary(audit),
        *_corruptions(audit),
        *_calibration(audit),
        *_attacks(audit),
        *_searches(audit, images),
        *_broken(audit, images),
        *_method(audit),
    ]
    facts = ", ".join(f"{model.name} {model.fingerprint}" for model in audit.models)
    footer = f"asrnorm {audit.version}; {facts}; images {audit.data_fingerprint}; seed {audit.seed}"
    write_json(out / NUMBERS, audit)
    page.write_page(
        out / PAGE, f"How {names} hold{'s' if len(audit.models) == 1 else ''} up", parts, footer, style=STYLE
    )
    return out / PAGE, out / NUMBERS


def _summary(audit: Audit) -> list[str]:
    parts = [page.paragraph(summary.summarize(model)) for model in audit.models]
    if len(audit.models) > 1:
        parts.append(page.paragraph(summary.compare(audit)))
    parts += [f'<p class="warn">{markup.escape(line)}</p>' for line in summary.warnings(audit)]
    rows = []
    for model in audit.models:
        mean, hardest = model.under(), model.under(max(audit.severities))
        attack = min(model.attacks.values(), default=None)
        corrupted = [scores.accuracy if scores else None for scores in (mean, hardest)]
        rows.append((model.name, [model.clean.accuracy, *corrupted, model.search.scores.accuracy, attack]))
    columns = ["clean", "corrupted", f"severity {max(audit.severities)}", "worst tuple", "attack"]
    parts.append(page.percent_table(columns, rows))
    parts.append(
        page.paragraph(
            f"Accuracy in % on {audit.num_images:,} images of {len(audit.classes)} classes from {audit.data}. On so "
            f"many an accuracy is known to within {100 * summary.margin(audit.num_images):.0f} points (95 %).",
            note=True,
        )
    )
    return parts


def _corruptions(audit: Audit) -> list[str]:
    ticks, places = ["clean", *map(str, audit.severities)], (0, *audit.severities)
    means = [
        Line(model.name, [model.clean.accuracy, *(_mean(model, level) for level in audit.severities)], color)
        for color, model in enumerate(audit.models)
    ]
    panels = []
    for name in audit.models[0].corruptions:
        lines = [
            Line(
                model.name,
                [model.clean.accuracy, *(_accuracy(model, name, level) for level in audit.severities)],
                color,
            )
            for color, model in enumerate(audit.models)
        ]
        title = name.replace("_", " ")
        description = f"accuracy under {title} by severity"
        chart = curves(lines, ["0", *ticks[1:]], description, places=places, size=(190, 130))
        panels.append(f"<div><h4>{title}</h4>{chart}</div>")
    return [
        page.heading("Corruptions"),
        page.paragraph("The mean accuracy over all corruptions, by severity:"),
        legend(means),
        '<div class="wide">',
        curves(means, ticks, "mean accuracy by severity", places=places, label="severity"),
        "</div>",
        page.paragraph("And each by itself:"),
        f'<div class="panels">{"".join(panels)}</div>',
        "<h3>In numbers</h3>",
        corruption_table(audit),
        page.paragraph("Accuracy in %; the darker the cell, the more of the clean accuracy is lost.", note=True),
    ]


def _calibration(audit: Audit) -> list[str]:
    rows, panels = [], []
    for color, model in enumerate(audit.models):
        states = {"clean": model.clean, **{f"severity {level}": model.under(level) for level in audit.severities}}
        for state, scores in states.items():
            if scores is not None:
                name = f"{model.name}, {state}" if len(audit.models) > 1 else state
                rows.append((name, _calibration_row(scores)))
        for state, scores in {"clean": model.clean, "corrupted, all severities": model.under()}.items():
            if scores is not None:
                chart = reliability(scores.bins, f"reliability of {model.name}, {state}", color)
                panels.append(f"<div><h4>{markup.escape(model.name)} <small>{state}</small></h4>{chart}</div>")
    return [
        page.heading("Does it know when it is wrong?"),
        page.paragraph(
            "A bar is the share of right answers among those given with that confidence; the fuller its color, the "
            "more there are. On the dashed line a model is as often right as it is sure; below it, it is too sure."
        ),
        f'<div class="panels">{"".join(panels)}</div>',
        number_table(["accuracy", "confidence", "ECE", "Brier", "Brier / K", "NLL"], rows),
        page.paragraph(
            "In %, but for the NLL and the Brier score (the sum over classes, and divided by their number as in the "
            "ASR-Norm paper). ECE: 15 bins of equal width; means over corruptions.",
            note=True,
        ),
    ]


def _calibration_row(scores: Scores) -> list[str]:
    sure = scores.accuracy + summary.overconfidence(scores)
    return [
        *(f"{100 * value:.1f}" for value in (scores.accuracy, sure, scores.ece)),
        *(f"{value:.3f}" for value in (scores.brier_sum, scores.brier, scores.nll)),
    ]


def _attacks(audit: Audit) -> list[str]:
    parts = [page.heading("Attacks")]
    names = next((list(model.attacks) for model in audit.models if model.attacks), [])
    for model in audit.models:
        if model.no_attacks:
            parts.append(page.paragraph(f"{model.name}: not available: {model.no_attacks}."))
    if not names:
        return parts
    levels = sorted({float(name.partition("-")[2]) for name in names})
    lines = []
    for color, model in enumerate(audit.models):
        for label, start in (("FGSM", "fgsm"), ("PGD", "pgd")) if model.attacks else ():
            found = {float(k.partition("-")[2]): v for k, v in model.attacks.items() if k.startswith(start)}
            values = [model.clean.accuracy, *(found.get(level) for level in levels)]
            if found:
                lines.append(Line(f"{model.name}, {label}", values, color, dashed=start == "fgsm"))
    ticks = ["clean", *(f"{level:g}" for level in levels)]
    rows = [(model.name, [model.clean.accuracy, *map(model.attacks.get, names)]) for model in audit.models]
    chart = curves(lines, ticks, "accuracy under attack by radius", label="radius, in levels of 255")
    return [
        *parts,
        page.paragraph("No pixel moves by more than the radius, so that the images look the same to people."),
        legend(lines),
        f'<div class="wide">{chart}</div>',
        page.percent_table(["clean", *map(summary.describe_attack, names)], rows),
    ]


def _searches(audit: Audit, images: LabeledImages) -> list[str]:
    parts = [page.heading("The changes that hurt most")]
    first = audit.models[0].search
    parts.append(
        page.paragraph(
            f"RSDA's random search: of {first.candidates} random tuples of three changes of color, contrast and "
            f"sharpness, the one that makes a model miss most of {first.num_images} images. There may be worse ones."
        )
    )
    for model in audit.models:
        search = model.search
        parts.append(f"<h3>{markup.escape(model.name)}: {markup.escape(summary.describe_operations(model))}</h3>")
        columns = ["clean", "under the tuple"]
        parts.append(
            page.percent_table(
                columns, [(one.name, [one.clean.accuracy, search.accuracy[one.name]]) for one in audit.models], False
            )
        )
        parts.append(page.paragraph(_count(search.scores), note=True))
        change = partial(_transformed, model)
        parts.append(gallery(search.scores, images, model.classes, change, _SEARCH_SHOWN))
    return parts


def _transformed(model: ModelAudit, image: NDArray[np.uint8], row: int) -> NDArray[np.uint8]:  # noqa: ARG001
    return apply_operations(image, model.search.operations)


def _broken(audit: Audit, images: LabeledImages) -> list[str]:
    parts = [
        page.heading("What broke"),
        page.paragraph(
            "Images that are right when clean (left) and wrong under the corruption (right), at the mildest severity "
            "that breaks enough of them; the surest mistakes first, with the answer and how sure it was."
        ),
    ]
    for name in audit.models[0].corruptions:
        for color, model in enumerate(audit.models):
            title = f"{name.replace('_', ' ')}"
            who = f'<i class="key c{color}"></i>{markup.escape(model.name)} ' if len(audit.models) > 1 else ""
            level = choose_severity(model.corruptions[name])
            if level is None:
                parts.append(f"<h3>{title} <small>{who}nothing broke at any severity</small></h3>")
                continue
            scores = model.corruptions[name][level]
            parts.append(f"<h3>{title} <small>{who}severity {level}: {_count(scores)}</small></h3>")
            parts.append(gallery(scores, images, model.classes, partial(_corrupted, audit, name, level)))
    return parts


def _corrupted(audit: Audit, name: str, level: int, image: NDArray[np.uint8], row: int) -> NDArray[np.uint8]:
    return corrupt(image, name, severity=level, seed=audit.seed, indices=[row])


def _count(scores: Scores) -> str:
    return f"{scores.num_broken:,} of {scores.num_samples:,} images broke"


def _name_corruptions(audit: Audit) -> str:
    made, lacking = len(audit.models[0].corruptions), len(audit.not_available)
    return f"{made} of the {made + lacking} corruptions" if lacking else f"The {made} corruptions"


def _method(audit: Audit) -> list[str]:
    lines = [
        f"{audit.num_images:,} of {audit.num_found:,} images from {audit.data}, spread evenly over the classes, "
        f"resized to {audit.size[0]}x{audit.size[1]}.",
        *(f"{model.name} ({model.kind}): {model.num_classes} outputs, input {model.input}." for model in audit.models),
        f"{_name_corruptions(audit)} of CIFAR-10-C and ImageNet-C (Hendrycks and Dietterich, 2019), made anew on these "
        "images.",
        "FGSM (Goodfellow et al., 2015) and PGD from a random start (Madry et al., 2018), in the L-infinity ball.",
        "The random search over transformation tuples of Volpi and Murino (2019).",
    ]
    return [
        page.heading("How it was measured"),
        f"<ul>{''.join(f'<li>{markup.escape(line)}</li>' for line in lines)}</ul>",
    ]


def _mean(model: ModelAudit, level: int) -> float | None:
    scores = model.under(level)
    return scores.accuracy if scores else None


def _accuracy(model: ModelAudit, name: str, level: int) -> float | None:
    scores = model.corruptions.get(name, {}).get(level)
    return scores.accuracy if scores else None
