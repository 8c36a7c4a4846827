"""Figures: corruptions and attacks named in studies are those that results have."""

from asrnorm.audit.plan import GROUPS as AUDITED
from asrnorm.data.corruptions import CORRUPTIONS
from asrnorm.evaluation.attacks import ATTACKS
from asrnorm.studies import get_study
from asrnorm.studies.cifar10c_norm import ATTACKS as NAMED
from asrnorm.studies.domain import matches
from asrnorm.studies.figure import GROUPS


def test_groups_are_the_19_corruptions_each_once():
    names = [name for group in GROUPS.values() for name in group]
    assert sorted(names) == list(CORRUPTIONS.names())
    assert len(names) == 19
    assert {name: set(group) for name, group in AUDITED.items()} == {name: set(group) for name, group in GROUPS.items()}


def test_columns_take_their_own_corruptions_and_no_others():
    cells = get_study("fig-corruptions").rows[0].cells
    assert matches(cells["blur"].measure, "gaussian_blur/3")
    assert not matches(cells["blur"].measure, "gaussian_noise/3")
    assert [name for name in CORRUPTIONS.names() if matches(cells["fog"].measure, f"{name}/1")] == ["fog"]


def test_attacks_are_those_of_the_evaluation():
    assert set(NAMED) == {attack.name for attack in ATTACKS}
