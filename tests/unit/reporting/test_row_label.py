"""Rows of one recipe are told apart by what was set."""

from asrnorm.core.config import content_hash, override
from asrnorm.recipes import recipe
from asrnorm.reporting.row_label import label_rows

NAME = "digits_mini.erm_asr"


def labels(*changes):
    """Labels of the smoke run of one recipe under several `--set`."""
    base = recipe(NAME, scale="smoke")
    configs = [override(base, change) for change in changes]
    found = label_rows({content_hash(config): config for config in configs})
    return [found[content_hash(config)] for config in configs]


def test_a_row_alone_needs_no_settings():
    assert labels({}) == [NAME]


def test_the_fields_that_differ_are_named_as_they_were_set():
    lr = f"{recipe(NAME, scale='smoke').optim.lr:g}"
    first, second = labels({"model.hidden": 8}, {"model.hidden": 8, "method": "rsda", "optim.lr": "0.01"})
    assert first == f"{NAME}, method=erm, optim.lr={lr}"
    assert second == f"{NAME}, method=rsda, optim.lr=0.01"


def test_options_are_named_among_equal_choices_only():
    found = labels({}, {"method": "rsda"}, {"method": "rsda", "method.interval": 7})
    assert found == [
        f"{NAME}, method=erm",
        f"{NAME}, method=rsda, method.interval=default",
        f"{NAME}, method=rsda, method.interval=7",
    ]


def test_lists_and_nothing_are_written_as_in_a_setting():
    found = labels({"model.channels": "[4, 8]"}, {"model.channels": "[8, 8]"})
    assert found == [f"{NAME}, model.channels=[4, 8]", f"{NAME}, model.channels=[8, 8]"]


def test_a_row_chosen_by_the_targets_says_so_alone_and_beside_others():
    chosen = {"selection": "oracle", "evaluate_every": 1}
    assert labels(chosen) == [f"{NAME} (oracle)"]
    assert labels({}, chosen) == [NAME, f"{NAME} (oracle)"]


def test_many_fields_give_way_to_the_hash():
    change = {"optim.lr": 0.5, "optim.momentum": 0.5, "steps": 77, "batch_size": 3}
    base = recipe(NAME, scale="smoke")
    assert labels({}, change) == [f"{NAME} [{content_hash(one)}]" for one in (base, override(base, change))]


def test_one_row_with_many_fields_does_not_hide_what_the_others_are():
    many = {"optim.lr": 0.5, "optim.momentum": 0.5, "steps": 77, "batch_size": 3}
    *others, odd = labels({}, {"method": "rsda"}, {"method": "ada"}, many)
    assert others == [NAME, f"{NAME}, method=rsda", f"{NAME}, method=ada"]
    assert odd == f"{NAME} [{content_hash(override(recipe(NAME, scale='smoke'), many))}]"


def test_the_seed_and_the_device_do_not_count():
    found = labels({"device": "cpu", "seed": 1}, {"device": "auto", "seed": 2, "steps": 5})
    assert all(label.startswith(f"{NAME}, steps=") and label.count("=") == 1 for label in found)
