"""The findings of an audit in sentences."""

import math

from asrnorm.audit.paired import is_higher, paired_interval
from asrnorm.audit.result import Audit, ModelAudit, Scores
from asrnorm.core.errors import count_of

_NEAR_CHANCE = 0.5  # a model within this share above chance is close to guessing


def summarize(audit: Audit) -> list[str]:
    """Return a paragraph about each model, the most telling numbers first, and one that compares two models."""
    comparison = compare(audit)
    return [*map(_summarize_model, audit.models), *([comparison] if comparison else [])]


def _summarize_model(model: ModelAudit) -> str:
    sentences = [f"{model.name} is right on {_percent(model.clean.accuracy)} of the clean images."]
    mean = model.under()
    if mean is not None:
        every = [
            (one.accuracy, name, level) for name, levels in model.corruptions.items() for level, one in levels.items()
        ]
        worst, name, level = min(every, key=lambda item: item[0])
        sentences.append(
            f"Under corruption it is right on {_percent(mean.accuracy)} on average, and {_percent(worst)} at "
            f"worst ({name.replace('_', ' ')}, severity {level})."
        )
    left = _percent(model.search.scores.accuracy)
    sentences.append(f"Three changes of color and contrast ({describe_operations(model)}) leave {left}.")
    if model.attacks:
        name, accuracy = min(model.attacks.items(), key=lambda item: item[1])
        sentences.append(f"The strongest attack tried ({describe_attack(name)}) leaves {_percent(accuracy)}.")
    if mean is not None:
        gap = overconfidence(mean)
        points = count_of(abs(round(100 * gap)), "point")
        direction = "above" if gap >= 0 else "below"
        sentences.append(f"Under corruption its confidence is {points} {direction} its accuracy.")
    return " ".join(sentences)


def compare(audit: Audit) -> str:
    """Return a sentence that says which of two models does better under corruption; empty if there is only one."""
    means = [mean.accuracy for model in audit.models if (mean := model.under())]
    if len(means) != 2:
        return ""
    first, second = audit.models
    gain = 100 * (means[0] - means[1])
    one, other = ([scores.right for scores in model.corrupted()] for model in audit.models)
    count = audit.num_images
    won, lost = (
        sum(is_higher([a], [b], count) for a, b in zip(*sides, strict=True)) for sides in ((one, other), (other, one))
    )
    ends = sorted(100 * end * (1 if gain >= 0 else -1) for end in paired_interval(one, other, count))
    interval = f" (95 % interval {ends[0]:.1f} to {ends[1]:.1f})" if all(map(math.isfinite, ends)) else ""
    return (
        f"Under corruption {first.name} is {abs(gain):.1f} points {'ahead of' if gain >= 0 else 'behind'} "
        f"{second.name} on average{interval}; of {len(one)} corrupted versions it is clearly ahead on {won} "
        f"and clearly behind on {lost}."
    )


def warnings(audit: Audit) -> list[str]:
    """Return what a reader must know before believing the numbers."""
    lines = []
    for model in audit.models:
        chance = 1 / model.num_classes
        if model.clean.accuracy <= chance + _NEAR_CHANCE * chance * (1 - chance):
            lines.append(
                f"{model.name} is right on {_percent(model.clean.accuracy)} of clean images, close to guessing: check "
                "--classes, --mean, --std and --weights before reading on."
            )
    if audit.skipped:
        lines.append(
            f"skipped {count_of(len(audit.skipped), 'file')} that cannot be read; the first: {audit.skipped[0]}"
        )
    lines += [f"{name} is not available: {reason}" for name, reason in audit.not_available.items()]
    lines += [
        f"{model.name}: attacks are not available: {model.no_attacks}." for model in audit.models if model.no_attacks
    ]
    return lines


def margin(num_images: int) -> float:
    """Return half the width of the widest 95 % interval of an accuracy on so many images.

    Example:
        >>> round(margin(100), 3)
        0.098
    """
    return 1.96 * math.sqrt(0.25 / num_images)


def overconfidence(scores: Scores) -> float:
    """Return the mean confidence minus the accuracy."""
    total = sum(count for count, _, _ in scores.bins)
    return sum(count * confidence - right for count, right, confidence in scores.bins) / total


def describe_operations(model: ModelAudit) -> str:
    """Return the worst tuple of operations in words, with RSDA's levels (factors, thresholds, cut-offs or shifts)."""
    return ", ".join(
        name.replace("_", " ") + ("" if name == "grayscale" else f" {level:.3g}")
        for name, level in model.search.operations
    )


def describe_attack(name: str) -> str:
    """Return an attack's name in words.

    Example:
        >>> describe_attack("pgd10-0.5")
        'PGD, 10 steps, 0.5/255'
    """
    kind, _, level = name.partition("-")
    return f"FGSM, {level}/255" if kind == "fgsm" else f"PGD, {kind.removeprefix('pgd')} steps, {level}/255"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
