"""What a conversion did: readable by a person, and by a program."""

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import groupby

from torch import nn

from asrnorm.conversion.kind import Recognized, Unsupported
from asrnorm.conversion.replace import NormAct, has_affine, has_state_hooks
from asrnorm.conversion.site import Site


@dataclass
class ConversionSummary:
    """The record of one conversion; `print` it.

    Attributes:
        norm: name of the new norm.
        chosen_by: the preset, patterns or function that chose the layers.
        converted: name, old class, new class of each converted layer.
        left: name, class and reason of each norm layer that was left alone.
        notes: what else is worth knowing.
        parameters: number of the model's parameters before and after.
    """

    norm: str
    chosen_by: str
    converted: list[tuple[str, str, str]] = field(default_factory=list)
    left: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    parameters: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        before, after = self.parameters
        total = len(self.converted) + len(self.left)
        lines = [
            f"{len(self.converted)} of {total} norm layers converted to {self.norm!r} by {self.chosen_by}; "
            f"parameters {before:,} -> {after:,} ({(after - before) / max(before, 1):+.1%})"
        ]
        width = max((len(name) for name, *_ in (*self.converted, *self.left)), default=0)
        lines += [f"  {name:<{width}}  {old} -> {new}" for name, old, new in self.converted]
        for reason, rows in groupby(sorted(self.left, key=lambda row: row[2]), key=lambda row: row[2]):
            lines.append(f"left alone ({reason}):")
            lines += [f"  {name:<{width}}  {kind}" for name, kind, _ in rows]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def repr_line(module: nn.Module) -> str:
    """Return class and options of a layer without its children.

    Example:
        >>> repr_line(nn.ReLU(inplace=True))
        'ReLU(inplace=True)'
    """
    if isinstance(module, NormAct):
        return f"{repr_line(module.norm)} + {type(module.act).__name__}"
    return f"{type(module).__name__}({module.extra_repr()})"


def why_left(site: Site, kinds: Collection[str]) -> str:
    """Return the reason why a norm layer was not converted."""
    if isinstance(site.what, Unsupported):
        return site.what.reason
    if site.what.kind in kinds:
        return "not chosen"
    reason = "may see a single value per channel" if site.what.kind == "batch1d" else f"of kind {site.what.kind!r}"
    return f"{reason}; name it in layers=, or add {site.what.kind!r} to kinds=, to convert it"


def notes_on(built: list[tuple[Site, nn.Module]], norm: str) -> list[str]:
    """Return what a conversion did not carry over, or carried over in a way worth saying."""
    old_and_new = [(site.what, _norm_of(new)) for site, new in built if isinstance(site.what, Recognized)]
    found = {
        "gated": sum(bool(getattr(new, "gated_rescale", False)) for _, new in old_and_new),
        "running": sum(what.running_mean is not None and not _tracks(new) for what, new in old_and_new),
        "affine": sum(what.weight is not None and not has_affine(new) for what, new in old_and_new),
        "fresh": sum(what.running_mean is None and _tracks(new) for what, new in old_and_new),
        "alone": sum(what.is_synchronized and _tracks(new) for what, new in old_and_new),
        "plain": sum(what.weight is None and what.bias is None and has_affine(new) for what, new in old_and_new),
        "frozen": sum(what.weight is not None and not what.weight.requires_grad for what, _ in old_and_new),
    }
    wording = {
        "gated": "the learned rescaling of {} is gated (gated_rescale=True), to keep the scale of trained activations",
        "running": f"running statistics of {{}} are not used by {norm!r}",
        "affine": f"affine values of {{}} are not used by {norm!r}",
        "fresh": "{} had no running statistics, and the new ones start with 0 and 1: train, or asrnorm.reestimate",
        "alone": "{} took statistics over all processes, and the new ones take those of their own",
        "plain": "{} had no gain and bias, and the new ones are trained",
        "frozen": "affine values of {} were frozen and stay frozen; learned networks are trainable",
    }
    notes = [wording[key].format(count_layers(count)) for key, count in found.items() if count]
    hooked = [site.name for site, _ in built if has_state_hooks(site.module)]
    return notes + [f"{name}: its hooks on the state dict stay with the original" for name in hooked]


def _norm_of(module: nn.Module) -> nn.Module:
    return module.norm if isinstance(module, NormAct) else module


def _tracks(norm: nn.Module) -> bool:
    return any(getattr(module, "running_mean", None) is not None for module in norm.modules())


def count_layers(count: int) -> str:
    """Return a number of layers in words."""
    return "1 layer" if count == 1 else f"{count} layers"
