"""An audit measures what it says, once; killed, it goes on; two models see the same images."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from asrnorm.audit import AuditedModule, Plan, read_images, run, run_audit
from asrnorm.audit.result import measure
from asrnorm.audit.run import apply_operations
from asrnorm.audit.session import to_nchw, to_unit
from asrnorm.core.errors import InputError
from asrnorm.data.corruptions import corrupt
from asrnorm.evaluation import SignedSteps
from asrnorm.methods import keyed_generator
from helpers.audited import ColorNet, make_folder

OUTPUTS = {"blue": 0, "green": 1, "red": 2}
PLAN = Plan(
    severities=(1, 5), corruptions=("fog", "saturate", "frost"), fgsm=(8,), pgd=(8, 32), candidates=6, search_images=6
)


@pytest.fixture
def images(tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path / "nothing"))
    return read_images(make_folder(tmp_path / "data"), (32, 32))


class Counted(ColorNet):
    def __init__(self, most=None):
        super().__init__()
        self.most, self.calls = most, 0

    def forward(self, images):
        self.calls += 1
        if self.most is not None and self.calls > self.most:
            raise KeyboardInterrupt
        return super().forward(images)


class Noisy(ColorNet):
    """Sees single pixels, so that other noise is another answer."""

    def forward(self, images):
        return super().forward(images) + 10 * images[:, :, 3, 5]


def model(network=None, name="net"):
    made = AuditedModule(name, network or ColorNet())
    made.probe((32, 32))
    return made


def audit(images, *models, **options):
    return run_audit(models, images, [OUTPUTS] * len(models), PLAN, workers=1, progress=False, **options)


def test_every_number_is_what_the_model_gives(images):
    found = audit(images, model()).models[0]
    labels = torch.from_numpy(images.labels)
    assert found.clean.accuracy == 1.0
    corrupted = corrupt(images.images, "saturate", severity=5, seed=0)
    right = ColorNet()(to_unit(corrupted)).argmax(1) == labels
    assert found.corruptions["saturate"][5].accuracy == float(right.float().mean())
    assert found.corruptions["saturate"][5].num_broken == int((~right).sum())
    attack = SignedSteps(32, 10)
    attacked = attack.apply(model().module, to_unit(images.images), labels, keyed_generator(0, 0, attack.name))
    assert found.attacks["pgd10-32"] == float((ColorNet()(attacked).argmax(1) == labels).float().mean())
    assert found.attacks["pgd10-32"] <= found.attacks["pgd10-8"] <= 1


def test_images_are_corrupted_as_tensors_where_asked(images, tmp_path):
    plan = dataclasses.replace(PLAN, corruptions=("gaussian_noise", "jpeg_compression"), severities=(5,))
    cache, labels = tmp_path / "ledger.jsonl", torch.from_numpy(images.labels)

    def accuracies(**options):
        options |= {"workers": 1, "progress": False, "cache": cache}
        found = run_audit([model(Noisy())], images, [OUTPUTS], plan, **options)
        assert found.tensors == options.get("tensors", False)
        return [levels[5].nll for levels in found.models[0].corruptions.values()]

    by_arrays, by_tensors = accuracies(), accuracies(tensors=True)
    noisy = corrupt(to_nchw(images.images), "gaussian_noise", severity=5)
    assert by_tensors[0] == pytest.approx(measure(Noisy()(to_unit(noisy)), labels).nll)
    assert by_tensors[0] != by_arrays[0]  # other noise, and the cache knows
    assert by_tensors[1] == by_arrays[1]
    parts = [json.loads(line)["part"] for line in cache.read_text().split("\n") if line]
    assert parts.count("corruption/jpeg_compression/5") == 1  # the same images: not measured again
    assert (accuracies(), accuracies(tensors=True)) == (by_arrays, by_tensors)


def test_the_tuple_found_is_the_worst_of_those_tried(images):
    search = audit(images, model()).models[0].search
    changed = apply_operations(images.images, search.operations)
    right = ColorNet()(to_unit(changed)).argmax(1) == torch.from_numpy(images.labels)
    assert search.scores.accuracy == search.accuracy["net"] == float(right.float().mean())
    assert (search.candidates, search.num_images) == (6, 6)
    rows = np.arange(6) * len(images) // 6
    assert search.wrong == int((~right[rows]).sum()) > 0


def test_what_cannot_be_made_is_named_with_the_fix(images):
    found = audit(images, model())
    assert set(found.models[0].corruptions) == {"fog", "saturate"}
    assert "asrnorm data fetch frost" in found.not_available["frost"]


def test_a_killed_audit_goes_on_to_the_same_result(images, tmp_path):
    whole = audit(images, model(Counted()))
    network = Counted(most=9)
    with pytest.raises(KeyboardInterrupt):
        audit(images, model(network), cache=tmp_path / "ledger.jsonl")
    kept = [json.loads(line)["part"] for line in (tmp_path / "ledger.jsonl").read_text().split("\n") if line]
    assert "clean" in kept
    assert len(kept) == len(set(kept))
    network.most = None
    resumed = audit(images, model(network), cache=tmp_path / "ledger.jsonl")
    assert dataclasses.replace(resumed, seconds=0) == dataclasses.replace(whole, seconds=0)
    network.calls = 0
    audit(images, model(network), cache=tmp_path / "ledger.jsonl")
    assert network.calls == 2  # the probe alone: nothing is measured twice


@pytest.mark.parametrize("change", ["nothing", "model", "form", "images", "seed", "classes"])
def test_a_ledger_is_believed_for_the_same_question_alone(images, tmp_path, change):
    cache, network = tmp_path / "ledger.jsonl", Counted()
    asked = model(network)
    audit(images, asked, cache=cache)
    outputs, plan = OUTPUTS, PLAN
    if change == "model":
        network.fc.weight.data *= 2
        asked = model(network)
    if change == "form":
        asked.input_spec = dataclasses.replace(asked.input_spec, mean=(0.1,) * 3, std=(1.0,) * 3)
    if change == "images":
        images = dataclasses.replace(images, images=255 - images.images)
    if change == "seed":
        plan = dataclasses.replace(PLAN, seed=1)
    if change == "classes":
        outputs = {"blue": 2, "green": 1, "red": 0}
    network.calls = 0
    run_audit([asked], images, [outputs], plan, cache=cache, workers=1, progress=False)
    assert network.calls == 0 if change == "nothing" else network.calls > 10


def test_two_models_see_the_same_images_and_each_other_s_tuple(images):
    blunt = ColorNet(sharpness=1.0)
    blunt.fc.bias.data = torch.tensor([0.0, 0.2, 0.0])
    both = audit(images, model(), model(blunt, "blunt"))
    alone = audit(images, model(blunt, "blunt")).models[0]
    assert both.models[1].corruptions == alone.corruptions
    assert both.models[1].attacks == alone.attacks
    assert set(both.models[0].search.accuracy) == {"net", "blunt"}


@pytest.mark.parametrize("seed", range(3))
def test_a_search_among_more_candidates_does_not_believe_those_of_a_smaller_one(images, tmp_path, seed):
    few, many = (dataclasses.replace(PLAN, candidates=count, seed=seed, corruptions=()) for count in (4, 9))

    def search(plan, cache):
        options = {"cache": cache, "workers": 1, "progress": False}
        return run_audit([model()], images, [OUTPUTS], plan, **options).models[0].search

    search(few, tmp_path / "ledger.jsonl")
    assert search(many, tmp_path / "ledger.jsonl") == search(many, None)


def test_a_fixed_batch_size_changes_nothing(images):
    fixed = model()
    fixed.input_spec = fixed.module.input_spec = dataclasses.replace(fixed.input_spec, batch=5)
    one, other = audit(images, model()).models[0], audit(images, fixed).models[0]
    assert one.corruptions == other.corruptions
    assert one.search == other.search


def test_workers_give_the_same_numbers(images):
    one = audit(images, model())
    several = run_audit([model()], images, [OUTPUTS], PLAN, workers=2, progress=False)
    assert several.models == one.models


def test_a_model_that_fails_under_way_is_one_line(images):
    class Late(ColorNet):
        def forward(self, images):
            if images.mean() > 0.55:
                raise ValueError("too bright")
            return super().forward(images)

    with pytest.raises(InputError, match=r"late raised ValueError .* too bright"):
        audit(images, model(Late(), "late"))


def test_two_models_of_one_name_are_refused(images):
    with pytest.raises(InputError, match="two models are called 'net'"):
        audit(images, model(), model())


def test_an_attack_that_changes_nothing_leaves_every_image_of_every_batch_right(tmp_path):
    images = read_images(make_folder(tmp_path / "data", per_class=8), (32, 32))
    model = AuditedModule("net", ColorNet())
    model.probe((32, 32))
    plan = Plan(severities=(1,), corruptions=(), fgsm=(1e-3,), pgd=(1e-3,), candidates=1, search_images=1)
    found = run_audit([model], images, [{"blue": 0, "green": 1, "red": 2}], plan, workers=1, progress=False)
    assert len(images) == 24  # more than are attacked at a time
    assert set(found.models[0].attacks.values()) == {1.0}


@pytest.mark.parametrize("workers", [1, 2])
def test_images_handed_out_in_parts_are_corrupted_as_the_whole_set_is(tmp_path, workers):
    images = read_images(make_folder(tmp_path / "data", per_class=8), (32, 32))
    model = AuditedModule("net", ColorNet())
    model.probe((32, 32))
    plan = Plan(severities=(5,), corruptions=("gaussian_noise",), fgsm=(), pgd=(), candidates=1, seed=3)
    found = run_audit([model], images, [{"blue": 0, "green": 1, "red": 2}], plan, workers=workers, progress=False)
    whole = to_unit(corrupt(images.images, "gaussian_noise", severity=5, seed=3))
    expected = measure(ColorNet()(whole).detach(), torch.from_numpy(images.labels))
    assert found.models[0].corruptions["gaussian_noise"][5].nll == pytest.approx(expected.nll, rel=1e-5)


def test_a_second_model_is_measured_beside_one_that_the_ledger_knows(tmp_path):
    images = read_images(make_folder(tmp_path / "data"), (32, 32))
    plan = Plan(severities=(5,), corruptions=("saturate",), fgsm=(), pgd=(), candidates=2)

    def audit(*names, cache=None):
        models = [AuditedModule(name, ColorNet(sharpness)) for name, sharpness in zip(names, (8.0, 0.5), strict=False)]
        for model in models:
            model.probe((32, 32))
        outputs = [{"blue": 0, "green": 1, "red": 2}] * len(models)
        return run_audit(models, images, outputs, plan, cache=cache, workers=1, progress=False).models

    audit("net", cache=tmp_path / "ledger.jsonl")
    assert audit("net", "other", cache=tmp_path / "ledger.jsonl") == audit("net", "other")


def test_the_random_starts_of_attacks_follow_the_seed_of_the_plan(tmp_path, monkeypatch):
    keys, made = [], run.keyed_generator
    monkeypatch.setattr(run, "keyed_generator", lambda *key, **where: keys.append(key) or made(*key, **where))
    images = read_images(make_folder(tmp_path / "data", per_class=8), (32, 32))
    model = AuditedModule("net", ColorNet())
    model.probe((32, 32))
    plan = Plan(severities=(1,), corruptions=(), fgsm=(), pgd=(8,), candidates=1, search_images=1, seed=7)
    run_audit([model], images, [{"blue": 0, "green": 1, "red": 2}], plan, workers=1, progress=False)
    assert keys == [(7, 0, "pgd10-8"), (7, 16, "pgd10-8")]


def test_another_seed_tries_other_tuples(tmp_path):
    images = read_images(make_folder(tmp_path / "data"), (32, 32))
    model = AuditedModule("net", ColorNet())
    model.probe((32, 32))

    def search(seed):
        plan = Plan(severities=(1,), corruptions=(), fgsm=(), pgd=(), candidates=3, seed=seed)
        outputs = [{"blue": 0, "green": 1, "red": 2}]
        return run_audit([model], images, outputs, plan, workers=1, progress=False).models[0].search

    found = [search(seed).operations for seed in (0, 1, 2, 0)]
    assert found[0] == found[3]
    assert found[0] != found[1] or found[0] != found[2]


def test_of_two_models_each_has_the_reading_under_its_own_tuple(tmp_path):
    images = read_images(make_folder(tmp_path / "data"), (32, 32))
    blunt = ColorNet(sharpness=1.0)
    blunt.fc.bias.data = torch.tensor([0.0, 0.2, 0.0])
    models = [AuditedModule("net", ColorNet()), AuditedModule("blunt", blunt)]
    for model in models:
        model.probe((32, 32))
    plan = Plan(severities=(1,), corruptions=(), fgsm=(), pgd=(), candidates=6)
    found = run_audit(models, images, [{"blue": 0, "green": 1, "red": 2}] * 2, plan, workers=1, progress=False)
    readings = [model.search.scores for model in found.models]
    assert [one.accuracy for one in readings] == [model.search.accuracy[model.name] for model in found.models]
    assert readings[0].nll != readings[1].nll


def test_noise_of_another_seed_is_measured_anew_beside_an_old_ledger(tmp_path):
    images = read_images(make_folder(tmp_path / "data"), (32, 32))
    model = AuditedModule("net", ColorNet(0.5))
    model.probe((32, 32))
    first = Plan(severities=(5,), corruptions=("gaussian_noise",), fgsm=(), pgd=(), candidates=2, seed=0)

    def measure(plan, cache=None):
        options = {"cache": cache, "workers": 1, "progress": False}
        found = run_audit([model], images, [{"blue": 0, "green": 1, "red": 2}], plan, **options)
        return found.models[0].corruptions["gaussian_noise"][5].nll

    other = dataclasses.replace(first, seed=1)
    old = measure(first, tmp_path / "ledger.jsonl")
    assert measure(other, tmp_path / "ledger.jsonl") == measure(other)
    assert measure(other) != old
