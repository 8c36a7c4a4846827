import json

import pytest

from asrnorm.reporting.figures import FIGURES
from asrnorm.studies import collect, get_study
from asrnorm.studies.plan import iterate_specs
from helpers.figure_case import found, legend_texts, lines_by_label
from helpers.made_up_run import make_up_divergence, make_up_runs

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'asrnorm[data]'")


@pytest.mark.parametrize(("name", "panels"), [("fig-lambda-cifar", 2), ("fig-lambda-pacs", 4)])
def test_lambdas_stand_beside_weight_decay_alone(name, panels, tmp_path):
    figure = FIGURES["lambdas"](found(name, tmp_path), tmp_path)
    assert len(figure.axes) == 2 * panels  # with and without decay on the lambdas
    wanted = ["first layer", "middle layer", "last layer", "mean of all layers", "weight decay alone", "other layers"]
    assert legend_texts(figure) == wanted
    first, second = (lines_by_label(figure.axes[index]) for index in (0, panels))
    assert first["weight decay alone"][0].get_ydata()[0] == pytest.approx(0.0474, abs=1e-4)
    no_decay = second["weight decay alone"][0].get_ydata()
    assert no_decay[0] == no_decay[-1]
    assert len(first["mean of all layers"][0].get_xdata()) > 1


def test_lambdas_average_the_seeds(tmp_path):
    collected = found("fig-lambda-cifar", tmp_path)
    record = collected.cells["ADA + ASR-Norm", "Avg."].records[0]
    rows = [json.loads(line) for line in (record.folder / "log.jsonl").read_text().splitlines()]
    for row in rows:
        for layer in row.get("lambdas", {}).values():
            layer["lambda_mu"] += 0.1
    (record.folder / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    drawn = lines_by_label(FIGURES["lambdas"](collected, tmp_path).axes[0])["first layer"][0].get_ydata()
    moved = rows[0]["lambdas"]["layer1.norm"]["lambda_mu"]
    assert drawn[0] == pytest.approx(moved - 0.05)


def test_every_layer_has_a_line(tmp_path):
    collected = found("fig-lambda-cifar", tmp_path, seeds=(0,))
    for cell in collected.cells.values():
        for record in cell.records:
            path = record.folder / "log.jsonl"
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            for row in rows:
                if "lambdas" in row:
                    row["lambdas"] = {f"layer{i}.norm": {"lambda_mu": 0.01 * i} for i in range(37)}
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    drawn = lines_by_label(FIGURES["lambdas"](collected, tmp_path).axes[0])
    behind = {round(100 * line.get_ydata()[0]) for line in drawn["other layers"]}
    assert behind == set(range(37)) - {0, 18, 36}  # first, middle and last stand before them


def rewrite_lambdas(collected, change):
    for cell in collected.cells.values():
        for record in cell.records:
            path = record.folder / "log.jsonl"
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            for row in rows:
                for layer in row.get("lambdas", {}).values():
                    layer.update({name: change(name, value) for name, value in layer.items()})
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_an_axis_is_enlarged_where_a_lambda_hardly_moves_and_says_so(tmp_path):
    collected = found("fig-lambda-pacs", tmp_path, seeds=(0,))
    rewrite_lambdas(collected, lambda name, value: 0.7 * value if name == "lambda_mu" else 0.05 + value % 0.001)
    figure = FIGURES["lambdas"](collected, tmp_path)
    titles = [axes.get_title() for axes in figure.axes[:4]]
    assert ["axis enlarged" in title for title in titles] == [False, True, True, True]
    assert figure.axes[0].get_ylim() == (-0.02, 1.02)
    low, high = figure.axes[1].get_ylim()
    assert (low, high) == figure.axes[5].get_ylim()  # with and without decay
    assert high - low < 0.1


def test_source_and_seeds_stand_beside_a_row(tmp_path):
    figure = FIGURES["lambdas"](found("fig-lambda-pacs", tmp_path, seeds=(0, 1)), tmp_path)
    label = figure.axes[4].get_ylabel()
    assert label.replace("\n", " ") == "RSC + ASR-Norm, no decay on lambdas art painting, mean of 2 seeds"


def test_the_mean_curve_is_over_all_layers(tmp_path):
    collected = found("fig-lambda-cifar", tmp_path, seeds=(0,))
    record = collected.cells["ADA + ASR-Norm", "Avg."].records[0]
    rows = [json.loads(line) for line in (record.folder / "log.jsonl").read_text().splitlines()]
    layers = next(row["lambdas"] for row in reversed(rows) if "lambdas" in row).values()
    drawn = lines_by_label(FIGURES["lambdas"](collected, tmp_path).axes[0])["mean of all layers"][0].get_ydata()
    assert drawn[-1] == pytest.approx(sum(layer["lambda_mu"] for layer in layers) / len(layers))


def test_residual_marks_where_a_run_broke(tmp_path):
    study = get_study("ablation-residual")
    broken = next(spec for spec in iterate_specs(study) if spec.overrides and spec.recipe.startswith("cifar"))
    make_up_runs(study, tmp_path, seeds=[0], skip=lambda spec, seed: spec == broken)
    make_up_divergence(broken, tmp_path, 0)
    collected = collect(study, runs=tmp_path, scale="smoke", seeds=[0])
    figure = FIGURES["residual"](collected, tmp_path)
    assert [axes.get_title().split(",")[0] for axes in figure.axes] == ["Digits", "CIFAR-10", "PACS from photo"]
    texts = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    assert texts == [[], ["NaN"], []]
    assert [text.get_text() for text in figure.axes[1].get_legend().get_texts()] == ["as it is", "no residual"]


def test_a_comparison_with_one_side_alone_has_no_panel(tmp_path):
    study = get_study("ablation-residual")
    make_up_runs(study, tmp_path, seeds=[0], skip=lambda spec, seed: bool(spec.overrides) and "pacs" in spec.recipe)
    figure = FIGURES["residual"](collect(study, runs=tmp_path, scale="smoke", seeds=[0]), tmp_path)
    assert [axes.get_title().split(",")[0] for axes in figure.axes] == ["Digits", "CIFAR-10"]
