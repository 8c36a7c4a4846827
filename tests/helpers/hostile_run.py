"""Run folders whose every free text attacks whoever shows it: HTML, Markdown, spreadsheets, LaTeX, terminals."""

import dataclasses
import json

import yaml

from asrnorm.core.results import read_result, write_result
from helpers.made_up_run import make_up_runs
from helpers.small_study import small_study

SCRIPT = "\"'><script>document.title='OWNED'</script><img src=x onerror=\"document.title='OWNED'\">"
LINK = "[click](javascript:alert(1)) ![x][y] <javascript:alert(2)>"
FORMULA = '=HYPERLINK("http://example.com")'
TERMINAL = "\x1b]0;OWNED\x07\x1b[2J\x9b31m"
TEXT = f"{FORMULA} {SCRIPT} {LINK} {TERMINAL} \\input{{/etc/passwd}} $x$ | a\n\n# b"


def make_hostile_runs(runs):
    """Write finished runs with hostile recipes, domains, scales, selections, commits and environments."""
    make_up_runs(small_study(), runs, seeds=(0, 1))
    for folder in sorted(runs.iterdir()):
        result = read_result(folder / "result.json")
        first, second, *rest = result.domains
        domains = (dataclasses.replace(first, name=TEXT), dataclasses.replace(second, name=f"@{SCRIPT}"), *rest)
        hostile = dataclasses.replace(
            result,
            recipe=TEXT,
            scale=TEXT,
            selection=TEXT,
            commit=TEXT,
            domains=domains,
            missing=(f"{TEXT}/1",),
            source=dataclasses.replace(result.source, name=TEXT),
        )
        write_result(folder / "result.json", hostile)
        environment = dict.fromkeys(("device", "gpu", "torch", "day", "edition", "scored"), TEXT)
        (folder / "env.json").write_text(json.dumps({**environment, "commit": "a", "resumed": [{"commit": TEXT}]}))
        config = yaml.safe_load((folder / "config.yaml").read_text())
        config["suite"]["args"]["source"] = TEXT
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return runs
