"""What an audit found, in sentences."""

import math

from asrnorm.audit.result import Audit, ModelAudit, Scores

_NEAR_CHANCE = 0.5  # of what guessing gives, and less of it the fewer classes there are


def summarize(model: ModelAudit) -> str:
    """Return the findings on one model, the most telling first."""
    clean = model.clean.accuracy
    sentences = [f"{model.name} is right on {_percent(clean)} of the images as they are."]
    mean = model.under()
    if mean is not None:
        name, level, worst = worst_corruption(model)
        sentences.append(
            f"Under corruption that is {_percent(mean.accuracy)} on average, and {_percent(worst.accuracy)} at worst "
            f"({name.replace('_', ' ')}, severity {level})."
        )
    left = _percent(model.search.scores.accuracy)
    sentences.append(f"Three changes of color and contrast ({describe_operations(model)}) leave {left}.")
    if model.attacks:
        name, accuracy = min(model.attacks.items(), key=lambda item: item[1])
        sentences.append(f"The strongest attack tried ({describe_attack(name)}) leaves {_percent(accuracy)}.")
    if mean is not None:
        gap = overconfidence(mean)
        word = "surer than it is right" if gap >= 0 else "less sure than it is right"
        sentences.append(f"Under corruption it is {abs(100 * gap):.0f} points {word}.")
    return " ".join(sentences)


def compare(audit: Audit) -> str:
    """Return in a sentence which of two models holds up better, or nothing where there is one."""
    if len(audit.models) != 2:
        return ""
    first, second = audit.models
    means = [model.under() for model in audit.models]
    if means[0] is None or means[1] is None:
        return ""
    gain = 100 * (means[0].accuracy - means[1].accuracy)
    gains = [
        scores.accuracy - second.corruptions[name][level].accuracy
        for name, levels in first.corruptions.items()
        for level, scores in levels.items()
    ]
    won, lost = sum(one > 0 for one in gains), sum(one < 0 for one in gains)
    return (
        f"Under corruption {first.name} is {abs(gain):.1f} points {'ahead of' if gain >= 0 else 'behind'} "
        f"{second.name} on average; of {len(gains)} corrupted versions it is ahead on {won} and behind on {lost}."
    )


def warnings(audit: Audit) -> list[str]:
    """Return what a reader must know before believing the numbers."""
    lines = []
    for model in audit.models:
        chance = 1 / model.num_classes
        if model.clean.accuracy <= chance + _NEAR_CHANCE * chance * (1 - chance):
            lines.append(
                f"{model.name} is right on {_percent(model.clean.accuracy)} of clean images, close to guessing: check "
                "--classes, --mean, --std and --weights before scores on."
            )
    if audit.skipped:
        lines.append(f"{len(audit.skipped)} files could not be read and were left out; the first: {audit.skipped[0]}")
    lines += [f"{name} is not available: {reason}" for name, reason in audit.not_available.items()]
    lines += [
        f"{model.name}: attacks are not available: {model.no_attacks}." for model in audit.models if model.no_attacks
    ]
    return lines


def margin(num_images: int) -> float:
    """Return the widest half of a 95 % interval of an accuracy on so many images.

    Example:
        >>> round(margin(100), 3)
        0.098
    """
    return 1.96 * math.sqrt(0.25 / num_images)


def worst_corruption(model: ModelAudit) -> tuple[str, int, Scores]:
    """Return the corruption and severity with the lowest accuracy."""
    every = [(name, level, one) for name, levels in model.corruptions.items() for level, one in levels.items()]
    return min(every, key=lambda item: item[2].accuracy)


def overconfidence(scores: Scores) -> float:
    """Return the mean confidence less the accuracy."""
    total = sum(count for count, _, _ in scores.bins)
    return sum(count * confidence - right for count, right, confidence in scores.bins) / total


def describe_operations(model: ModelAudit) -> str:
    """Return a tuple of operations in words.

    Levels are factors, thresholds, cut-offs or shifts, as in RSDA's set; grayscale has none.
    """
    parts = (
        name.replace("_", " ") + ("" if name == "grayscale" else f" {level:.3g}")
        for name, level in model.search.operations
    )
    return ", ".join(parts)


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
