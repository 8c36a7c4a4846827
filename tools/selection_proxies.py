"""Measures how well scores on source images rank settings by unseen accuracy: `python -m tools.selection_proxies`.

It rewrites the table of `docs/evaluation/proxies.md` and draws its figure, from the kept results of the studies of open
settings. A setting is a row of such a study; those whose epochs are chosen on the targets are left out.
"""

import hashlib
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from asrnorm.core.config import Scale
from asrnorm.reporting.figures.base import canvas, look, to_svg
from asrnorm.studies import get_study
from asrnorm.studies.spec import RunSpec, scored_hash
from asrnorm.studies.store import Store, find_results
from tools.result_figures import for_image

PAGE = Path("docs", "evaluation", "proxies.md")  # from the root of the source tree
FIGURE = Path("docs", "assets", "selection-proxies.svg")
PROXIES = {"source-val": "held out", "shifted-val": "shifted"}
# The studies of open settings, at the scale of which all their rows are kept.
STUDIES: tuple[tuple[str, str, Scale], ...] = (
    ("PACS, one source", "pacs-reading", "paper"),
    ("PACS, three sources", "pacs-multi-reading", "paper"),
    ("Digits", "digits-reading", "short"),
    ("CIFAR-10-C, ADA", "cifar-reading", "short"),
)
RESAMPLES = 10_000
_BLOCK = re.compile(r"(<!-- proxies -->\n).*?(<!-- end proxies -->)", re.DOTALL)
_FEWEST = 5  # settings, below which no correlation is shown
_FAILED = 5.0  # points below the best setting on held-out images, from which a setting fails on its own source

Statistic = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Setting:
    """A setting: its scores by proxy and its unseen accuracy, in percent, for each of its runs and over all of them.

    Attributes:
        is_asr: it has ASR-Norm with the statistics of samples, as in the paper.
        parts: by the domain that the runs are of; `""` is the mean over all.
    """

    label: str
    is_asr: bool
    parts: dict[str, dict[str, float]]


def read_settings(name: str, scale: Scale, store: Store) -> list[Setting]:
    """Return the settings of a study that are complete, each averaged over its seeds."""
    study = get_study(name)
    settings = []
    for row in study.rows:
        runs = row.cells["Unseen"].runs
        seeds = [_read_seed(runs, seed, scale, store) for seed in range(study.seeds)]
        done = [parts for parts in seeds if parts is not None]
        config = runs[0].scored_config(0, scale)
        if not done or config.selection == "oracle":
            continue
        parts = {part: {key: _mean([seed[part][key] for seed in done]) for key in done[0][part]} for part in done[0]}
        is_asr = config.norm.name == "asr" and config.norm.args.get("statistics", "instance") == "instance"
        settings.append(Setting(row.label, is_asr, parts))
    return settings


def _read_seed(runs: Sequence[RunSpec], seed: int, scale: Scale, store: Store) -> dict[str, dict[str, float]] | None:
    parts = {}
    for spec in runs:
        found = store.results.get(scored_hash(spec, seed, scale))
        if found is None or not PROXIES.keys() <= found.result.validation.keys():
            return None
        scores = {rule: 100 * found.result.validation[rule] for rule in PROXIES}
        name = "".join(map(str, spec.options.values()))
        parts[name] = {**scores, "unseen": 100 * found.result.average_accuracy}
    mean = {key: _mean([part[key] for part in parts.values()]) for key in (*PROXIES, "unseen")}
    return {"": mean} if len(parts) == 1 else {"": mean, **parts}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return Spearman's rank correlation along the last axis; ties have the mean of their ranks, constants give NaN."""
    ranks = [(np.sign(v[..., :, None] - v[..., None, :]).sum(-1)) for v in (x, y)]  # centered, up to a factor
    return _cosine(*ranks)


def kendall(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return Kendall's rank correlation (tau-b) along the last axis; constants give NaN."""
    signs = [np.sign(v[..., :, None] - v[..., None, :]).reshape(*v.shape[:-1], -1) for v in (x, y)]
    return _cosine(*signs)


def _cosine(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    norms = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    return np.divide((x * y).sum(-1), norms, out=np.full(norms.shape, np.nan), where=norms > 0)


def bootstrap(statistic: Statistic, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return a 95 % interval of a statistic over resampled settings, by percentiles; the same at every call."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(x), (RESAMPLES, len(x)))
    values = np.concatenate([statistic(x[part], y[part]) for part in np.array_split(rows, 20)])
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return float(low), float(high)


def select_groups(title: str, settings: list[Setting]) -> dict[str, list[Setting]]:
    """Return the settings that are correlated over all their runs: all, those with ASR-Norm, those that train."""
    asr = [setting for setting in settings if setting.is_asr]
    groups = {title: settings}
    if _FEWEST <= len(asr) < len(settings):
        groups[f"{title}, ASR-Norm only"] = asr
    trained = [setting for setting in asr if not has_failed(setting, settings)]
    if _FEWEST <= len(trained) < len(asr):
        groups[f"{title}, ASR-Norm only, without {len(asr) - len(trained)} that fail on the source"] = trained
    return groups


def has_failed(setting: Setting, settings: Sequence[Setting]) -> bool:
    """Return whether a setting is far below the best of them on held-out images of the source."""
    best = max(other.parts[""]["source-val"] for other in settings)
    return setting.parts[""]["source-val"] < best - _FAILED


@cache
def _collect(kept: Path) -> dict[str, list[Setting]]:
    store = find_results(kept / "no-runs", kept)
    return {title: read_settings(name, scale, store) for title, name, scale in STUDIES}


def render(kept: Path) -> str:
    """Return the table: for every suite and proxy the rank correlations, and what the proxy would pick."""
    lines = [
        "| settings | n | score on | Spearman | Kendall | unseen: picked | mean | best |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for title, settings in _collect(kept).items():
        for name, group in select_groups(title, settings).items():
            lines += _render_rows(name, group, "")
        for part in [part for part in settings[0].parts if part]:
            lines += _render_rows(f"{title}: {part.replace('_', ' ')}", settings, part)
    return "\n".join(lines)


def _render_rows(name: str, settings: Sequence[Setting], part: str) -> list[str]:
    if len(settings) < _FEWEST:
        return []
    unseen = np.array([setting.parts[part]["unseen"] for setting in settings])
    lines = []
    for rule, words in PROXIES.items():
        score = np.array([setting.parts[part][rule] for setting in settings])
        cells = []
        for statistic in (spearman, kendall):
            low, high = bootstrap(statistic, score, unseen)
            cells.append(
                f"{float(statistic(score, unseen)):.2f} ({low:.2f} to {high:.2f})".replace("-", "\N{MINUS SIGN}")
            )
        picked = unseen[score == score.max()].mean()  # ties share the pick
        cells += [f"{value:.1f}" for value in (picked, unseen.mean(), unseen.max())]
        lines.append(f"| {name} | {len(settings)} | {words} | {' | '.join(cells)} |")
        name = ""
    return lines


def draw(kept: Path) -> str:
    """Return the figure as SVG: unseen accuracy against each proxy, for each suite, without settings that fail."""
    suites = {
        title: [one for one in settings if not has_failed(one, settings)] for title, settings in _collect(kept).items()
    }
    with canvas(10.5, 5.4, nrows=2, ncols=len(suites), squeeze=False) as (figure, panels):
        for column, (title, settings) in enumerate(suites.items()):
            for line, (rule, words) in enumerate(PROXIES.items()):
                axes = panels[line][column]
                for index, (is_asr, label) in enumerate(((True, "ASR-Norm, as in the paper"), (False, "other norms"))):
                    some = [setting.parts[""] for setting in settings if setting.is_asr == is_asr]
                    color, marker = look(index)
                    points = [one[rule] for one in some], [one["unseen"] for one in some]
                    axes.scatter(*points, s=16, color=color, marker=marker, label=label)
                axes.set_xlabel(f"source, {words}, %")
                if line == 0:
                    axes.set_title(title)
            panels[0][column].set_ylabel("unseen, %")
            panels[1][column].set_ylabel("unseen, %")
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
        return f"<!-- drawn from {fingerprint(kept)} -->\n{for_image(to_svg(figure))}\n"


def fingerprint(kept: Path) -> str:
    """Return twelve hex digits over the numbers that the figure shows."""
    facts = [[title, one.label, one.is_asr, one.parts[""]] for title, found in _collect(kept).items() for one in found]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


def rewrite(text: str, kept: Path) -> str:
    """Return the text of the page with its table rewritten from the kept results."""
    return _BLOCK.sub(lambda match: f"{match.group(1)}{render(kept)}\n{match.group(2)}", text)


def main(root: Path) -> None:
    """Rewrite the page of a source tree and draw its figure."""
    page = root / PAGE
    page.write_text(rewrite(page.read_text(encoding="utf-8"), root / "results"), encoding="utf-8")
    (root / FIGURE).write_text(draw(root / "results"), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    sys.stdout.write(f"{PAGE} and {FIGURE}\n")
