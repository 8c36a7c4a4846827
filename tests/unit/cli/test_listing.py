"""`asrnorm list studies`: the paper's tables and figures, without torch."""

import json
import subprocess
import sys

from asrnorm.cli.main import main
from asrnorm.studies import list_studies


def test_studies_are_listed_in_the_order_of_the_paper_with_what_they_show(capsys):
    assert main(["list", "studies", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    names = [row["name"] for row in rows]
    assert names == list(list_studies())
    assert names[:10] == [f"table{number}" for number in range(1, 11)]
    assert all(row["summary"] and not row["options"] for row in rows)


def test_studies_open_without_torch():
    code = "import sys; from asrnorm.studies import get_study; get_study('table8'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
