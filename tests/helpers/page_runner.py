"""Run the code of a docs page from top to bottom, as a reader would: `python page_runner.py PAGE [MODULE ...]`.

Modules named after the page cannot be imported, as where they are not installed, and its audits are made small.

A Python block that begins with `# name.py` is saved under that name and imported; the others run one after the other in
one namespace. A YAML block that begins with `# name.yaml` is saved. Of a console block, lines of `asrnorm` and of
`python examples/...` are run.
"""

import importlib
import re
import runpy
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(python|console|yaml)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\w+)\.py\n")
DATA = re.compile(r"# ([\w-]+\.yaml)\n")
SMALL = {"audit": ["--limit", "8"]}


def run_page(page: Path, hidden: Sequence[str] = ()) -> int:
    """Run all blocks and return how many there were; with modules hidden, small."""
    sys.modules |= dict.fromkeys(hidden)  # an import of them fails
    from asrnorm.cli.main import main

    sys.path.insert(0, str(Path.cwd()))
    names: dict = {"__name__": "__page__"}
    count = 0
    for language, code in BLOCK.findall(page.read_text()):
        if language == "yaml":
            if match := DATA.match(code):
                Path(match.group(1)).write_text(code)
            continue
        count += 1
        if language == "console":
            for words in (shlex.split(line, comments=True) for line in code.replace("\\\n", " ").splitlines()):
                run_line([*words, *(SMALL.get(words[1], []) if hidden else [])], main)
        elif match := FILE.match(code):
            Path(f"{match.group(1)}.py").write_text(code)
            importlib.invalidate_caches()
            module = importlib.import_module(match.group(1))
            names |= {name: value for name, value in vars(module).items() if not name.startswith("_")}
        else:
            exec(compile(code, page.name, "exec"), names)
    return count


def run_line(words: list[str], main) -> None:
    """Run one line of a console block."""
    if words[:1] == ["asrnorm"]:
        status = main(words[1:])
        assert status == 0, f"{shlex.join(words)}: exit status {status}"
    elif words[:1] == ["python"]:
        sys.argv = words[1:]
        runpy.run_path(str(ROOT / words[1]), run_name="__main__")
    else:
        raise AssertionError(f"neither asrnorm nor python: {shlex.join(words)}")


if __name__ == "__main__":
    sys.stdout.write(f"ran {run_page(Path(sys.argv[1]), sys.argv[2:])} blocks\n")
