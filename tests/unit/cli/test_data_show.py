from types import SimpleNamespace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from asrnorm import data
from asrnorm.cli.data_show import SuiteDomains, show
from asrnorm.core.errors import InputError, UnknownNameError, WrongCallError


class Files:
    """Images that stay in their files."""

    labels = np.arange(4) % 2

    def read(self, row):
        return np.full((8, 8, 3), row, np.uint8)


class Targets(dict):
    def __init__(self, *names):
        super().__init__(dict.fromkeys(names))
        self.loaded = []

    def __getitem__(self, name):
        self.loaded.append(name)
        return image_set()


def image_set():
    return SimpleNamespace(images=np.zeros((4, 8, 8, 3), np.uint8), labels=np.arange(4) % 2)


def fake_suite(*targets, **more):
    return SimpleNamespace(
        sources=("cifar10",), classes=("cat", "dog"), train=image_set(), targets=Targets(*targets), **more
    )


@pytest.fixture
def run(monkeypatch, tmp_path):
    made = []

    def run(suite, *words):
        def create_suite(name, **options):
            made.append((name, options))
            return suite

        monkeypatch.setattr(data, "create_suite", create_suite, raising=False)
        monkeypatch.chdir(tmp_path)
        app = typer.Typer()
        app.command()(show)
        return CliRunner().invoke(app, list(words), catch_exceptions=False), made

    return run


def test_sheets_are_written_and_named(run, tmp_path):
    result, made = run(fake_suite("snow", "fog"), "cifar10c", "--out", "samples")
    assert result.exit_code == 0
    assert result.stdout == "samples: overview.png, cifar10.png, snow.png, fog.png\n"
    assert {file.name for file in (tmp_path / "samples").iterdir()} == {
        "overview.png",
        "cifar10.png",
        "snow.png",
        "fog.png",
    }
    assert made == [("cifar10c", {})]


def test_targets_that_are_not_there_are_told_of(run):
    suite = fake_suite()
    suite.missing = [SimpleNamespace(name=name, role="target", detail="no file") for name in ("fog/1", "fog/2")]
    result, _ = run(suite, "cifar10c")
    assert result.exit_code == 0
    assert result.stderr == "not shown: fog/1 and 1 more: no file\n"


def test_a_file_in_place_of_the_folder_is_refused(run, tmp_path):
    (tmp_path / "afile").write_text("my own")
    with pytest.raises(WrongCallError, match="--out afile: a file; give a folder"):
        run(fake_suite("fog"), "cifar10c", "--out", "afile")


def test_without_out_a_folder_under_runs_is_used(run, tmp_path):
    run(fake_suite("fog"), "cifar10c")
    assert (tmp_path / "runs/samples/cifar10c/overview.png").is_file()


def test_root_and_source_reach_the_suite_only_when_given(run, tmp_path):
    _, made = run(fake_suite("fog"), "pacs", "--root", "elsewhere", "--source", "photo")
    (name, options), *_ = made
    assert (name, {key: str(value) for key, value in options.items()}) == (
        "pacs",
        {"root": "elsewhere", "source": "photo"},
    )


def test_of_levels_only_the_strongest_is_loaded(run):
    suite = fake_suite("fog/1", "fog/5", "snow/5", "snow/1")
    run(suite, "cifar10c")
    assert suite.targets.loaded == ["fog/5", "snow/5"]


def test_chosen_domains_are_loaded_and_no_others(run):
    suite = fake_suite("fog/1", "fog/5")
    result, _ = run(suite, "cifar10c", "--domain", "fog/1", "--domain", "fog/1")
    assert suite.targets.loaded == ["fog/1"]
    assert result.stdout.endswith("overview.png, fog-1.png\n")


def test_an_unknown_domain_is_refused_before_anything_is_loaded():
    suite = fake_suite("fog/1")
    with pytest.raises(UnknownNameError, match="unknown domain 'fog/2'; did you mean 'fog/1'"):
        SuiteDomains(suite, ["fog/2"])
    assert suite.targets.loaded == []


def test_images_in_files_are_read_row_by_row():
    suite = fake_suite()
    suite.train = Files()
    images, labels = SuiteDomains(suite)["cifar10"]
    assert images[3].max() == 3
    assert labels.tolist() == [0, 1, 0, 1]


def test_the_source_is_shown_by_its_test_images_where_there_are_any():
    test = image_set()
    assert SuiteDomains(fake_suite(source_test=test))["cifar10"][0] is test.images
    suite = fake_suite(source_test=None)
    assert SuiteDomains(suite)["cifar10"][0] is suite.train.images


def test_a_suite_that_loads_itself_is_loaded(run):
    loaded = fake_suite("fog")
    result, _ = run(SimpleNamespace(load=lambda: loaded), "cifar10c")
    assert result.exit_code == 0
    assert loaded.targets.loaded == ["fog"]


def test_data_of_no_known_form_is_refused():
    suite = fake_suite()
    suite.train = SimpleNamespace(labels=np.arange(2))
    with pytest.raises(InputError, match="neither images nor read"):
        SuiteDomains(suite)["cifar10"]
