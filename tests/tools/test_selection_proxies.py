"""How well scores on the source rank settings: the statistics, what counts as a setting, and the page."""

from pathlib import Path

import numpy as np
import pytest

from tools.selection_proxies import (
    FIGURE,
    PAGE,
    PROXIES,
    Setting,
    _collect,
    bootstrap,
    fingerprint,
    has_failed,
    kendall,
    rewrite,
    select_groups,
    spearman,
)

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "results"
CLEARLY_RANKED = "CIFAR-10-C, ADA"


@pytest.mark.parametrize("ties", [False, True])
def test_correlations_are_those_of_scipy(ties):
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 12))
    x, y = (x.round(), (x + y).round()) if ties else (x, x + y)
    assert float(spearman(x, y)) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert float(kendall(x, y)) == pytest.approx(stats.kendalltau(x, y).statistic)


def test_a_constant_score_has_no_correlation_and_resampling_is_repeatable():
    x = np.arange(8.0)
    assert np.isnan(kendall(np.zeros(8), x))
    assert bootstrap(spearman, x, x) == (1.0, 1.0)
    noisy = np.random.default_rng(0).permutation(x)
    low, high = bootstrap(spearman, x, noisy)
    assert (low, high) == bootstrap(spearman, x, noisy)
    assert -1 <= low < float(spearman(x, noisy)) < high <= 1


def test_groups_are_all_readings_those_with_asr_and_those_that_train():
    scores = [95.0, 94.0, 93.0, 92.0, 91.0, 80.0, 95.5]
    settings = [Setting(str(n), n < 6, {"": {"source-val": score}}) for n, score in enumerate(scores)]
    assert [len(group) for group in select_groups("x", settings).values()] == [7, 6, 5]
    assert [has_failed(setting, settings) for setting in settings].index(True) == 5


def test_readings_have_all_parts_and_none_is_chosen_on_the_targets():
    for settings in _collect(KEPT).values():
        assert len({tuple(setting.parts) for setting in settings}) == 1
        assert all("oracle" not in setting.label for setting in settings)
        for setting in settings:
            for key in (*PROXIES, "unseen"):
                parts = [part[key] for name, part in setting.parts.items() if name]
                assert not parts or setting.parts[""][key] == pytest.approx(sum(parts) / len(parts))


def test_the_page_and_its_figure_are_of_the_kept_results():
    text = (ROOT / PAGE).read_text()
    assert rewrite(text, KEPT) == text, "run: python -m tools.selection_proxies"
    mark = f"<!-- drawn from {fingerprint(KEPT)} -->"
    assert (ROOT / FIGURE).read_text().startswith(mark), "run: python -m tools.selection_proxies"


def test_the_conclusion_of_the_page_holds():
    """Among settings that train, only those of CIFAR-10-C are clearly ranked."""
    for title, settings in _collect(KEPT).items():
        *_, trained = select_groups(title, settings).values()
        for rule in PROXIES:
            points = [[setting.parts[""][key] for setting in trained] for key in (rule, "unseen")]
            low, _ = bootstrap(spearman, *map(np.array, points))
            assert (low > 0) == (title == CLEARLY_RANKED)
