"""`asrnorm list`: kinds of names, recipes as a grid, and studies without torch."""

import json
import subprocess
import sys

from asrnorm.cli.listing import REGISTRIES, group_recipes
from asrnorm.cli.main import main
from asrnorm.recipes import list_recipes
from asrnorm.studies import list_studies


def test_studies_are_listed_in_the_order_of_the_paper_with_what_they_show(capsys):
    assert main(["list", "studies", "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)
    names = [row["name"] for row in rows]
    assert names == list(list_studies())
    assert names[:10] == [f"table{number}" for number in range(1, 11)]
    assert all(row["summary"] and not row["options"] for row in rows)


def test_alone_it_lists_the_kinds(capsys):
    assert main(["list", "--names"]) == 0
    assert capsys.readouterr().out.split() == sorted(REGISTRIES)


def test_recipes_are_a_grid_that_fits_a_screen_and_stands_for_every_name(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rows = group_recipes(list_recipes())
    named = [
        f"{suite}.{method}_{norm}" if norm else f"{suite}.{method}"
        for suite, methods, norms in rows
        for method in methods
        for norm in norms or [""]
    ]
    assert sorted(named) == list(list_recipes())
    assert ("pacs", ["best"], []) in rows
    assert main(["list", "recipes"]) == 0
    assert len(capsys.readouterr().out.splitlines()) <= 24
    assert main(["list", "recipes", "--names"]) == 0
    assert capsys.readouterr().out.split() == list(list_recipes())


def test_studies_open_without_torch():
    code = "import sys; from asrnorm.studies import get_study; get_study('table8'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_names_of_a_form_are_listed_alone_and_one_that_fits_nothing_is_answered(capsys):
    assert main(["list", "recipes", "digits.rsda_*in*", "--json", "-"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert names == ["digits.rsda_bin", "digits.rsda_in", "digits.rsda_sn_in_ln"]
    assert main(["list", "recipes", "digits.rsda_inn"]) == 2
    said = capsys.readouterr().err
    assert (
        said == "asrnorm: unknown name among the recipes 'digits.rsda_inn'; did you mean 'digits.rsda_in'? There are "
        f"{len(list_recipes())}\n"
    )
