"""What the package sets out to reach on one H200, as data, and what was measured of it: a miss is shown as one."""

import json
from pathlib import Path
from typing import Any, NamedTuple


class Target(NamedTuple):
    """One line of the table of targets.

    Attributes:
        what: is measured.
        against: the baseline of the same run, or the unit.
        suite: whose result files hold the answer.
        work: how the works begin that answer it; the worst of them counts.
        path: how the ways begin that answer it; the best of them counts.
        value: the name of the number among a row's extra ones; lower is better.
        limit: the target.
        aim: what would be better still.
    """

    what: str
    against: str
    suite: str
    work: str
    path: str
    value: str
    limit: float
    aim: float | None = None


_BEST_BN = "best BatchNorm step"
_EAGER_LIMITS = (  # training step, evaluation at batch 128 and at batch 1
    ("WRN-40-4 at 32", 1.6, 1.3, 2.0),
    ("ResNet-18 at 224", 1.15, 1.3, 2.0),
    ("ResNet-50 at 224", 1.25, 1.3, 2.0),
    ("MobileNetV3-L at 224", 1.6, 1.3, 2.0),
)
_HOST_LIMITS = (("asr", 450, 260), ("in", 350, None), ("gn", 350, None), ("ln", 350, None))
_EAGER = (
    *(
        Target(
            f"eager {what}, {net}, all norms",
            "eager BatchNorm",
            "eager",
            f"eager {what}, {net}",
            "asr",
            "times_baseline",
            limit,
            aim,
        )
        for net, *limits in _EAGER_LIMITS
        for (what, aim), limit in zip(
            (("training step", 1.0), ("evaluation, batch 128", 1.0), ("evaluation, batch 1", 1.3)), limits, strict=True
        )
    ),
    *(
        Target(
            f"host time of one layer, forward and backward: `{name}`",
            "us",
            "eager",
            "host time of one layer",
            name,
            "host_us",
            limit,
            aim,
        )
        for name, limit, aim in _HOST_LIMITS
    ),
    Target(
        "training step by `torch.compile(mode='reduce-overhead')`, ResNet-18 at 224, all norms",
        "the same with BatchNorm",
        "eager",
        "training step by reduce-overhead, ResNet-18",
        "asr",
        "times_baseline",
        1.05,
        1.00,
    ),
    *(
        Target(f"first step of a ResNet-50, {cache}", "BatchNorm's, in s more", "eager", "first step", f"asr, {cache}",
               "more_s", limit, aim)
        for cache, limit, aim in (("empty cache", 15, 5), ("filled cache", 3, 1))
    ),
)  # fmt: skip
TARGETS = (
    Target(
        "WRN-40-4 training step, bf16, batch 128",
        _BEST_BN,
        "step",
        "training step, WRN-40-4, batch 128",
        "asr all, fused",
        "times_baseline",
        1.30,
        1.00,
    ),
    Target(
        "the same at batch 512",
        _BEST_BN,
        "step",
        "training step, WRN-40-4, batch 512",
        "asr all, fused",
        "times_baseline",
        1.10,
        1.00,
    ),
    Target(
        "peak memory of the step at batch 128, without parameters, gradients and optimizer",
        "BatchNorm's",
        "step",
        "training step, WRN-40-4, batch 128",
        "asr all, fused",
        "memory_ratio",
        1.05,
    ),
    Target(
        "ResNet-18 at 224, batch 128, `resnet-12`",
        _BEST_BN,
        "step",
        "training step, ResNet-18 at 224",
        "asr resnet-12, fused",
        "times_baseline",
        1.05,
    ),
    Target(
        "the same, all 20 norms",
        _BEST_BN,
        "step",
        "training step, ResNet-18 at 224",
        "asr all, fused",
        "times_baseline",
        1.05,
    ),
    Target(
        "one layer, forward and backward, (128,64,112,112) bf16",
        "its bytes at the bandwidth of a copy",
        "layers",
        "ResNet-18 stem (128,64,112,112) bfloat16",
        "asr, fused",
        "times_floor",
        2.0,
    ),
    Target(
        "WRN-40-4 forward pass in evaluation",
        "BatchNorm's, also in a CUDA graph",
        "step",
        "forward in evaluation, WRN-40-4",
        "asr all, fused",
        "times_baseline",
        1.15,
    ),
    Target(
        "Digits RSDA+ASR, 1,000,000 steps, one seed", "s", "train", "Digits RSDA+ASR", "trainer", "seconds", 500, 300
    ),
    Target(
        "the same, five seeds side by side",
        "s",
        "train",
        "Digits RSDA+ASR",
        "trainer, 5 seeds side by side",
        "seconds",
        1500,
        900,
    ),
    Target(
        "CIFAR-10, 78,200 steps of ADA+ASR and three ascents", "s", "train", "CIFAR-10 ADA", "ADA+ASR", "seconds", 720
    ),
    Target("PACS photo, RSC+ASR, 330 steps, loop only", "s", "train", "PACS photo RSC", "RSC+ASR", "seconds", 15),
    Target("PACS sketch, RSC+ASR, 810 steps, loop only", "s", "train", "PACS sketch RSC", "RSC+ASR", "seconds", 35),
    Target(
        "CIFAR-10-C evaluation, 950,000 images on the device, WRN-40-4",
        "s",
        "evaluate",
        "CIFAR-10-C",
        "asr, on the device",
        "seconds",
        60,
    ),
    *_EAGER,
)


def measured(target: Target, rows: list[dict[str, Any]]) -> float | None:
    """Return what answers a target: the best way of every work, and of those the worst; `None` without any.

    Example:
        >>> target = Target("a", "s", "train", "a", "x", "seconds", 1.0)
        >>> rows = [{"work": w, "path": p, "extra": {"seconds": s}} for w, p, s in
        ...     (("a1", "x", 3.0), ("a1", "x, fast", 2.0), ("a2", "x", 1.0), ("b", "x", 9.0))]
        >>> measured(target, rows)
        2.0
    """
    best: dict[str, float] = {}
    for row in rows:
        value = row.get("extra", {}).get(target.value)
        if value is None or not row["work"].startswith(target.work) or not _is_way(target, row["path"]):
            continue
        best[row["work"]] = min(value, best.get(row["work"], value))
    return max(best.values(), default=None)


def _is_way(target: Target, path: str) -> bool:
    """A seed alone and seeds side by side are different questions."""
    if "side by side" in path and "side by side" not in target.path:
        return False
    return path == target.path or path.startswith(f"{target.path},")


def render_targets(results: Path, machine: str) -> str:
    """Return the table of targets in Markdown, answered from the files `<suite>...--<machine>.json`, and its sum."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(results.glob(f"*--{machine}.json")):
        content = json.loads(file.read_text())
        rows.setdefault(content["suite"], []).extend(content["rows"])
    values = [measured(target, rows.get(target.suite, [])) for target in TARGETS]
    lines = [_sum_up(values), "", "| what | against | target | aim | measured | |"]
    lines.append("| --- | --- | ---: | ---: | ---: | --- |")
    for target, value in zip(TARGETS, values, strict=True):
        digits = ".0f" if target.against in ("s", "us") else ".2f"
        aim = "" if target.aim is None else format(target.aim, digits)
        cells = [target.what, target.against, f"≤ {target.limit:{digits}}", aim]
        lines.append(f"| {' | '.join(cells)} | {_show(value)} | {_verdict(target, value)} |")
    return "\n".join(lines)


def _sum_up(values: list[float | None]) -> str:
    """Say how far the measuring has come, and how it went."""
    pairs = [(target, value) for target, value in zip(TARGETS, values, strict=True) if value is not None]
    met = sum(value <= target.limit for target, value in pairs)
    if not pairs:
        return f"None of the {len(TARGETS)} targets has been measured yet."
    rest = f"; {len(TARGETS) - len(pairs)} are still to be measured" if len(pairs) < len(TARGETS) else ""
    return f"{met} of {len(pairs)} measured targets are met{rest}."


def _show(value: float | None) -> str:
    return "not yet" if value is None else f"{value:,.1f}" if value >= 10 else f"{value:.3f}"


def _verdict(target: Target, value: float | None) -> str:
    if value is None:
        return ""
    if value > target.limit:
        return f"missed by {value / target.limit - 1:.1%}"
    return "met, and the aim" if target.aim is not None and value <= target.aim else "met"
