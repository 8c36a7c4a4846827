"""Reports of made-up runs, and pictures of them, to look at: `python tests/helpers/sample_report.py OUT [STUDY]...`.

Nothing in them was ever measured, and their titles say so. Run it from the root with `PYTHONPATH=src:tests`.
"""

import sys
from dataclasses import replace
from pathlib import Path

from asrnorm.reporting.study import write_report
from asrnorm.studies import collect, get_study, list_studies
from asrnorm.studies.plan import iterate_specs
from helpers.browser import CHROMIUM, open_browser
from helpers.made_up_run import make_up_divergence, make_up_runs, make_up_statistics

WINDOWS = {"light": {}, "dark": {"dark": True}, "phone": {"width": 390, "height": 844}}


def write_sample(name: str, out: Path) -> Path:
    """Write the report of a study with some runs missing and some diverged, and return its page."""
    study = get_study(name)
    specs = list(iterate_specs(study))
    runs = out / "runs" / name
    lost = [spec for spec in specs if spec.may_diverge][:1]
    make_up_runs(study, runs, skip=lambda spec, seed: spec in lost or (spec == specs[0] and seed == 2))
    for spec in lost:
        make_up_divergence(spec, runs, 0)
    if "tsne" in study.figures:
        make_up_statistics(specs[0], runs, 0, samples=100)
    title = f"MADE UP, nothing here was measured: {study.title}"
    found = collect(replace(study, title=title), runs=runs, scale="smoke", seeds=[0, 1, 2])
    return write_report(found, out / name)[-1]


def take_pictures(pages: list[Path]) -> None:
    """Write what a browser shows of the pages beside them, in light, in dark and at the width of a phone."""
    with open_browser() as browser:
        tab = browser.new_page()
        for page in pages:
            for kind, window in WINDOWS.items():
                tab.open(page, **{**window, "height": 2000})
                tab.picture(page.with_name(f"{page.stem}-{kind}.png"))


def main(words: list[str]) -> None:
    out = Path(words[0])
    pages = [write_sample(name, out) for name in words[1:] or list_studies()]
    if CHROMIUM is not None:
        take_pictures(pages)
    sys.stdout.write("".join(f"{page}\n" for page in pages))


if __name__ == "__main__":
    main(sys.argv[1:])
