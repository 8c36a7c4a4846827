"""asrnorm evaluate: tables for people, a file for programs, results in the run's folder, one line for what is wrong."""

import errno
import json
import re
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from asrnorm import training
from asrnorm.cli.evaluate import check_free, evaluate
from asrnorm.cli.main import main
from asrnorm.core.config import Choice, content_hash, override
from asrnorm.core.errors import InputError, StorageError, UnknownNameError, WrongCallError
from asrnorm.core.results import read_result
from asrnorm.data import SUITES
from asrnorm.evaluation import score_suite
from asrnorm.studies.store import find_results
from helpers import tiny_run
from helpers.finished_run import QuarterNet, install_run
from helpers.tiny_run import tiny_config
from helpers.toy_suite import ToySuite

app = typer.Typer()
app.command()(evaluate)


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "120"})


@pytest.fixture
def run(tmp_path, monkeypatch):
    loaded = install_run(monkeypatch, tmp_path / "run", ToySuite(targets=("bright", "absent", "dark")))
    return SimpleNamespace(folder=tmp_path / "run", **vars(loaded))


def test_the_table_has_a_row_a_domain_the_average_and_what_is_missing(run):
    result = call(run.folder)
    assert result.exit_code == 0, result.output
    scores = score_suite(run.model, run.suite)
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line}
    for domain in (scores.source, *scores.domains):
        numbers = [f"{100 * domain.accuracy:.2f}", f"{domain.brier:.4f}", f"{domain.brier_sum:.4f}"]
        numbers += [f"{domain.nll:.4f}", f"{domain.ece:.4f}", "30"]
        assert rows[domain.name] == [domain.name, *numbers]
    assert f"average accuracy on 2 unseen domains: {100 * scores.average_accuracy:.2f} %" in result.stdout
    assert "missing: absent" in result.stdout
    assert "bright: accuracy" in result.stderr  # no terminal: progress in plain lines, apart from the tables


def test_the_file_has_every_number_and_nothing_half_written_beside_it(run, tmp_path):
    file = tmp_path / "made" / "scores.json"
    assert call(run.folder, "--json", file).exit_code == 0
    values = json.loads(file.read_text())
    scores = score_suite(run.model, run.suite)
    assert values["source"] == asdict(scores.source)
    assert values["domains"] == [asdict(domain) for domain in scores.domains]
    assert values["average_accuracy"] == scores.average_accuracy
    assert (values["missing"], values["adversarial"], values["schema"]) == (["absent"], {}, 1)
    assert (values["recipe"], values["suite"]) == ("toy.erm_bn", "toy")
    assert values["config_hash"] == content_hash(run.config)
    assert [path.name for path in file.parent.iterdir()] == ["scores.json"]


@pytest.mark.parametrize("words", [("--as", "x"), ("--statistics",), ("--suite", "toy"), ("--set", "adversarial=true")])
def test_images_of_data_are_only_scored(run, tmp_path, words):
    result = call(run.folder, "--data", tmp_path, *words)
    assert result.exit_code == 2
    assert "--data only scores images" in result.stderr


def test_without_a_target_the_average_in_the_file_is_null(tmp_path, monkeypatch):
    install_run(monkeypatch, tmp_path / "run", ToySuite(targets=("absent",)))
    result = call(tmp_path / "run", "--json", tmp_path / "scores.json")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "scores.json").read_text())["average_accuracy"] is None
    assert "average" not in result.stdout


def test_corruptions_are_shown_by_severity(tmp_path, monkeypatch):
    names = tuple(f"{corruption}/{severity}" for corruption in ("fog", "snow") for severity in (1, 2, 3))
    loaded = install_run(monkeypatch, tmp_path / "run", ToySuite(targets=names))
    lines = [line.split() for line in call(tmp_path / "run").stdout.splitlines()]
    accuracy = {domain.name: 100 * domain.accuracy for domain in score_suite(loaded.model, loaded.suite).domains}
    fog = [accuracy[f"fog/{severity}"] for severity in (1, 2, 3)]
    assert ["fog", *(f"{value:.1f}" for value in (*fog, sum(fog) / 3))] in lines
    level = (accuracy["fog/2"] + accuracy["snow/2"]) / 2
    assert any(line[:3] == ["severity", "2", f"{level:.2f}"] for line in lines)


@pytest.fixture
def registered():
    """Two suites in the registry: one with the run's classes, one with others."""
    SUITES.register("toy_other")(lambda *, count=12: ToySuite(targets=("far",), size=(16, 16), count=count))
    SUITES.register("toy_strange")(lambda: ToySuite(classes=("w", "x", "y", "z")))
    yield
    for name in ("toy_other", "toy_strange"):
        del SUITES._entries[name]


def test_another_suite_with_its_options(run, tmp_path, registered):
    file = tmp_path / "scores.json"
    assert call(run.folder, "--suite", "toy_other", "--set", "suite.count=7", "--json", file).exit_code == 0
    values = json.loads(file.read_text())
    assert values["suite"] == "toy_other"
    assert [(domain["name"], domain["num_samples"]) for domain in values["domains"]] == [("far", 7)]


def test_attacks_where_asked_for(run, tmp_path, monkeypatch):
    ascent = SimpleNamespace(ascend=lambda model, images, labels: images)
    monkeypatch.setattr("asrnorm.evaluation.attacks.perturb", lambda model, images, labels, **options: 0 * images)
    monkeypatch.setattr("asrnorm.evaluation.attacks.Ascent", lambda **options: ascent)
    file = tmp_path / "scores.json"
    result = call(run.folder, "--set", "adversarial=true", "--json", file)
    assert result.exit_code == 0, result.output
    values = json.loads(file.read_text())
    assert values["adversarial"]["ada25-1"] == values["source"]["accuracy"] == 1.0
    assert values["adversarial"]["pgd10-8"] < 0.5
    assert "pgd10-8" in result.stdout


def test_a_run_can_be_scored_in_twice_its_precision(run, tmp_path):
    result = call(run.folder, "--set", "precision=float64", "--json", tmp_path / "s.json")
    assert result.exit_code == 0, result.output
    scores = json.loads((tmp_path / "s.json").read_text())
    assert scores["precision"] == "float64"
    wide = score_suite(run.model.double(), run.suite, precision="float64")
    assert scores["source"]["nll"] == pytest.approx(wide.source.nll, rel=1e-12)


def test_bn_can_take_the_statistics_of_the_test_batch(run, tmp_path):
    with torch.no_grad():
        run.model.norm.running_mean.fill_(0.3)
    plain, batch = tmp_path / "plain.json", tmp_path / "batch.json"
    assert call(run.folder, "--json", plain).exit_code == 0
    result = call(run.folder, "--set", "norm=bn_test", "--set", "evaluate_batch=10", "--json", batch)
    assert result.exit_code == 0, result.output
    plain, batch = (json.loads(file.read_text()) for file in (plain, batch))
    assert (batch["norm"], batch["evaluate_batch"]) == ("bn_test", 10)
    assert batch["source"]["nll"] != plain["source"]["nll"]

    class FreshBatchNorm(torch.nn.BatchNorm2d):
        def forward(self, x):
            return torch.nn.functional.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)

    wanted = score_suite(QuarterNet(norm=FreshBatchNorm), run.suite, batch_size=10)
    assert batch["source"]["nll"] == pytest.approx(wanted.source.nll, abs=1e-5)


@pytest.mark.parametrize(
    ("words", "error", "named"),
    [
        (("--set", "optim.lr=1"), UnknownNameError, "'optim'.*nown: adapt"),
        (("--set", "norm=asr"), InputError, "'bn' cannot become 'asr'"),
        (("--set", "norm=bn_test", "--set", "norm.eps=100"), InputError, "leave norm.OPTION out"),
        (("--set", "precision=float8"), UnknownNameError, "'float8'"),
        (("--set", "evaluate_batch=0"), WrongCallError, "evaluate_batch"),
        (("--set", "device=nowhere"), InputError, "'nowhere'"),
        (("--suite", "toy_strange"), InputError, "a, b, c, d, .*w, x, y, z"),
        (("--suite", "digitz"), UnknownNameError, "did you mean 'digits'"),
        (("--suite", "digits", "--set", "suite.syn_like=maybe"), WrongCallError, "'syn_like' .* bool, not 'ma"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_setting_is_one_line_that_names_it(run, registered, words, error, named):
    caught = call(run.folder, *words).exception
    assert isinstance(caught, error)
    assert re.search(named, str(caught))
    assert "\n" not in str(caught)


def test_a_setting_without_a_value_is_a_wrong_call(run):
    result = call(run.folder, "--set", "precision")
    assert result.exit_code == 2
    assert "not of the form name=value" in result.output


def test_nan_weights_are_one_line_with_the_domain(run):
    with torch.no_grad():
        run.model.norm.weight.fill_(float("nan"))
    caught = call(run.folder).exception
    assert str(caught).startswith("domain 'home': NaN or infinite logits for 30 of 30 images")


def refuse_work(monkeypatch):
    monkeypatch.setattr("asrnorm.evaluation.score_suite", lambda *a, **o: pytest.fail("the run was evaluated"))


def test_a_folder_for_the_file_is_refused_before_the_work(run, tmp_path, monkeypatch):
    refuse_work(monkeypatch)
    caught = call(run.folder, "--json", tmp_path).exception
    assert isinstance(caught, InputError)
    assert str(caught) == f"{tmp_path}: a folder; give --json a file, such as {tmp_path / 'scores.json'}"


def test_a_full_disk_is_a_line_with_the_file(run, tmp_path, monkeypatch):
    def fail(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("asrnorm.core.files.os.fsync", fail)
    caught = call(run.folder, "--json", tmp_path / "scores.json").exception
    assert isinstance(caught, StorageError)
    assert str(caught) == f"{tmp_path / 'scores.json'}: No space left on device"


@pytest.mark.parametrize("words", [("--as", "x"), ("--suite", "toy"), ("--set", "evaluate_limit=2")])
def test_statistics_are_of_the_run_as_it_was_scored(run, words):
    result = call(run.folder, "--statistics", *words)
    assert result.exit_code == 2
    assert "leave out --as, --suite and --set" in " ".join(result.output.split())


def test_images_whose_classes_have_changed_are_refused(run, monkeypatch):
    monkeypatch.setattr(type(run.suite), "classes", ("b", "c", "d", "e"))
    caught = call(run.folder).exception
    assert isinstance(caught, InputError)
    assert re.search("a, b, c, d, .*b, c, d, e", str(caught))


def test_all_images_where_the_run_scored_few_are_told_of(tmp_path, monkeypatch):
    install_run(monkeypatch, tmp_path / "run", ToySuite(), evaluate_limit=7)
    result = call(tmp_path / "run")
    assert result.exit_code == 0
    assert "scoring all images; result.json has at most 7 per domain" in result.stderr
    assert "scoring all" not in call(tmp_path / "run", "--data", tmp_path).stderr  # of which result.json has none


def test_statistics_are_of_no_more_images_than_the_run_was_scored_on(tmp_path, monkeypatch):
    given = []

    def look(model, suite, **options):
        given.append((options["per_domain"], options["batch_size"]))
        return {"domain": np.zeros(3)}

    monkeypatch.setattr("asrnorm.evaluation.learned_statistics", look)
    for limit, batch in ((7, 16), (0, 512)):
        install_run(monkeypatch, tmp_path / f"run{limit}", ToySuite(), evaluate_limit=limit, evaluate_batch=batch)
        result = CliRunner().invoke(app, [str(tmp_path / f"run{limit}"), "--statistics"])
        assert result.exit_code == 0, result.output
    assert given[0] == (7, 16)
    assert given[1][0] > 7
    assert given[1][1] == 100


def test_attacks_are_seeded_as_the_run_and_on_the_images_that_are_scored(tmp_path, monkeypatch):
    calls = []

    def attack(model, images, **options):
        calls.append((len(images), options["seed"], options["batch_size"], options["name"]))
        return {"pgd": 0.5}

    monkeypatch.setattr("asrnorm.evaluation.score_attacks", attack)
    install_run(monkeypatch, tmp_path / "run", ToySuite(), seed=5, evaluate_batch=3)
    words = [str(tmp_path / "run"), "--set", "adversarial=true", "--set", "evaluate_limit=10"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert calls == [(10, 5, 3, "home")]


def test_the_hash_in_the_file_is_that_of_the_run_whatever_is_set(tmp_path, monkeypatch):
    run = install_run(monkeypatch, tmp_path / "run", ToySuite())
    file = tmp_path / "scores.json"
    words = [str(tmp_path / "run"), "--set", "norm=bn_test", "--set", "evaluate_batch=10", "--json", str(file)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert json.loads(file.read_text())["config_hash"] == content_hash(run.config)


def test_statistics_write_no_scores(run, tmp_path):
    result = call(run.folder, "--statistics", "--json", tmp_path / "scores.json")
    assert result.exit_code == 2
    assert "leave out --json" in result.output


@pytest.fixture
def toys(monkeypatch):
    for registry, name, entry in tiny_run.entries():
        monkeypatch.setitem(registry._entries, name, entry)


def make(folder, **changes):
    config = tiny_config(steps=6, evaluate_limit=12, **changes)
    return config, training.run(config, folder)


def test_the_same_config_gives_the_result_of_the_run(tmp_path, toys, capsys):
    _, result = make(tmp_path / "a")
    assert main(["evaluate", str(tmp_path / "a"), "--as", "again"]) == 0
    again = read_result(tmp_path / "a" / "evaluations" / "again.json")
    assert (again.source, again.domains, again.config_hash) == (result.source, result.domains, result.config_hash)
    assert (again.commit, again.num_parameters, again.steps) == (result.commit, result.num_parameters, result.steps)


def test_a_result_that_is_damaged_is_told_before_anything_is_scored(tmp_path, toys, capsys):
    make(tmp_path / "a")
    (tmp_path / "a" / "result.json").write_text("{")
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "a"), "--as", "again"]) == 1
    (line,) = capsys.readouterr().err.splitlines()  # and none of a domain that was scored
    assert "result.json: damaged" in line


def test_another_norm_and_batch_are_kept_under_their_own_hash(tmp_path, toys, capsys):
    config, result = make(tmp_path / "a")
    (tmp_path / "a" / "evaluations").mkdir()
    (tmp_path / "a" / "evaluations" / ".bn_test-5.json.99999999.tmp.json").touch()  # of a process that was killed
    words = ["--set", "norm=bn_test", "--set", "evaluate_batch=5", "--as", "bn_test-5"]
    assert main(["evaluate", str(tmp_path / "a"), *words]) == 0
    assert [path.name for path in (tmp_path / "a" / "evaluations").iterdir()] == ["bn_test-5.json"]
    kept = read_result(tmp_path / "a" / "evaluations" / "bn_test-5.json")
    assert kept.config_hash == content_hash(override(config, {"norm": "bn_test", "evaluate_batch": 5}))
    assert kept.source.num_samples == result.source.num_samples == 12
    assert kept.source.nll != result.source.nll
    assert result.validation
    assert not kept.validation  # measured with the norm of the run, not with this one


def test_a_name_kept_with_other_settings_is_refused_and_the_same_ones_may_replace_it(tmp_path, toys, capsys):
    make(tmp_path / "a")
    path = tmp_path / "a" / "evaluations" / "k1.json"
    words = ["evaluate", str(tmp_path / "a"), "--as", "k1", "--set"]
    assert main([*words, "evaluate_limit=9"]) == 0
    before = path.read_bytes()
    capsys.readouterr()
    assert main([*words, "evaluate_limit=6"]) == 2
    (line,) = capsys.readouterr().err.splitlines()  # and none of a domain that was scored
    assert line == (f"asrnorm: --as k1: {path} was made with other settings; choose another name, or --renew it")
    assert path.read_bytes() == before
    assert main([*words, "evaluate_limit=9"]) == 0
    assert main([*words, "evaluate_limit=4", "--renew"]) == 0
    assert read_result(path).source.num_samples == 4
    path.write_text("{")  # damaged
    assert main([*words, "evaluate_limit=6"]) == 0
    assert read_result(path).source.num_samples == 6


def test_to_renew_nothing_is_a_wrong_call(tmp_path, toys, capsys):
    make(tmp_path / "a")
    assert main(["evaluate", str(tmp_path / "a"), "--renew"]) == 2
    assert "needs --as" in capsys.readouterr().err


def test_a_name_is_free_for_its_own_settings_alone(tmp_path, toys, capsys):
    config, _ = make(tmp_path / "a")
    again = tmp_path / "a" / "evaluations" / "again.json"
    check_free(again, config)
    assert main(["evaluate", str(tmp_path / "a"), "--as", "again"]) == 0
    check_free(again, override(config, {"device": "cpu"}))  # which changes no number
    check_free(again.with_stem("other"), override(config, {"evaluate_batch": 5}))
    with pytest.raises(WrongCallError, match=r"^--as again: .*again\.json"):
        check_free(again, override(config, {"evaluate_batch": 5}))


def test_without_a_name_all_images_are_scored_and_nothing_is_kept(tmp_path, toys, capsys):
    make(tmp_path / "a")
    assert main(["evaluate", str(tmp_path / "a")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == "30"
    assert not (tmp_path / "a" / "evaluations").exists()
    assert main(["evaluate", str(tmp_path / "a"), "--set", "evaluate_limit=6"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == "6"


def test_the_statistics_are_written_and_removed_with_the_run(tmp_path, toys, capsys):
    config, _ = make(tmp_path / "a", norm=Choice(name="asr"))
    assert main(["evaluate", str(tmp_path / "a"), "--statistics"]) == 0
    path = tmp_path / "a" / "analyses" / "statistics.npz"
    with np.load(path, allow_pickle=False) as arrays:
        assert arrays["mu_first"].shape == (36, 6)  # twelve of each, as the run itself was scored on
        assert sorted(set(arrays["domain"].tolist())) == ["dark", "noisy", "plain"]
    assert [entry.name for entry in path.parent.iterdir()] == ["statistics.npz"]
    training.run(config, tmp_path / "a", fresh=True)
    assert not path.exists()


def test_statistics_of_a_run_without_asr_are_refused_in_one_line(tmp_path, toys, capsys):
    make(tmp_path / "a")
    assert main(["evaluate", str(tmp_path / "a"), "--statistics"]) == 1
    assert "no layer of this model learns its standardization" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../up", "", ".hidden", "a b", "a/b"])
def test_a_name_that_is_no_file_name_is_a_wrong_call(name):
    assert call("run", "--as", name).exit_code == 2


def test_a_folder_that_cannot_be_written_is_one_line(run, monkeypatch):
    monkeypatch.setattr("asrnorm.evaluation.learned_statistics", lambda *_, **__: {"domain": np.zeros(1)})
    (run.folder / "analyses").write_text("a file")
    caught = call(run.folder, "--statistics").exception
    assert isinstance(caught, StorageError)
    assert "statistics.npz: " in str(caught)


def test_an_evaluation_has_the_edition_of_its_own_test_images(tmp_path, toys, capsys, monkeypatch):
    make(tmp_path / "runs" / "a")
    monkeypatch.setattr(tiny_run.ToySuite, "edition", property(lambda self: "generated, seed 7"))
    assert main(["evaluate", str(tmp_path / "runs" / "a"), "--set", "evaluate_batch=5", "--as", "again"]) == 0
    found = find_results(tmp_path / "runs").results.values()
    assert {one.scored_again: one.result.origin.get("edition") for one in found} == {
        False: None,
        True: "generated, seed 7",
    }
