"""Figures of made-up runs, and what is read off their matplotlib objects."""

from asrnorm.studies import collect, get_study
from helpers.made_up_run import make_up_runs


def found(name, runs, *, seeds=(0, 1), **options):
    study = get_study(name)
    make_up_runs(study, runs, seeds=seeds, **options)
    return collect(study, runs=runs, scale="smoke", seeds=list(seeds))


def lines_by_label(axes):
    lines = {}
    for line in axes.get_lines():
        lines.setdefault(line.get_label(), []).append(line)
    return lines


def legend_texts(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]
