"""Who may import whom, and how long a file may be: the picture in ARCHITECTURE.md, enforced."""

import ast
import re
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "asrnorm"

# Modules on the floor import only the standard library and each other, and yaml inside functions; everyone may import
# them.
FLOOR = {
    "coercion",
    "commit",
    "config",
    "cores",
    "diagnosis",
    "errors",
    "fingerprint",
    "lock",
    "registry",
    "results",
    "schedule",
    "storage",
    "",
}
MAY_IMPORT = {
    "kernels": {"norms"},  # the reference alone, for second derivatives
    "norms": {"kernels"},  # inside functions
    "ops": {"norms"},
    "conversion": {"norms"},
    "models": {"kernels", "norms", "conversion"},
    "data": {"progress"},
    "world": set(),
    "graph": set(),
    "precision": set(),
    "progress": set(),
    "sharing": set(),
    "methods": {"models", "data", "world", "graph"},
    "evaluation": {"models", "data", "methods", "world", "graph", "precision"},
    "training": {
        "norms",
        "conversion",
        "models",
        "data",
        "methods",
        "evaluation",
        "world",
        "graph",
        "precision",
        "progress",
    },
    "exporting": {"ops", "norms", "models", "data", "evaluation", "training"},
    "recipes": set(),
    "studies": {"recipes"},
    "report": {"studies"},
    "launch": {"recipes", "studies", "sharing"},
    "bench": {
        *("ops", "norms", "conversion", "models", "data", "methods", "evaluation", "training", "recipes", "world"),
        "sharing",
    },
    "audit": {"models", "data", "methods", "evaluation", "training", "report", "progress"},
}
MAY_IMPORT["cli"] = set(MAY_IMPORT)
MOST_LINES = 600
LONGER_FOR_A_REASON: dict[str, int] = {}
# Imported where they are used, never by importing the package. Files of these folders hold kernels, which are compiled
# from their source and so need Triton at the top: nothing imports them but functions.
KERNEL_FOLDERS = {"kernels", "triton"}
OPTIONAL = {
    "torchvision",
    "timm",
    "triton",
    "ray",
    "submitit",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "safetensors",
    "yaml",
    "matplotlib",
}
BANNED_NAMES = {"utils", "misc", "helpers", "common"}

FILES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "" if parts[0].startswith("__") else parts[0]


def imported_modules(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def top_level(path: Path) -> ast.Module:
    """Return what importing a file runs: all but its functions and classes."""
    body = ast.parse(path.read_text()).body
    return ast.Module([node for node in body if not isinstance(node, ast.FunctionDef | ast.ClassDef)], [])


def rooms_of(modules: set[str]) -> set[str]:
    rooms = {name.split(".")[1] for name in modules if name.startswith("asrnorm.")}
    return rooms & (set(MAY_IMPORT) | FLOOR)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_arrows(path):
    here = room(path)
    if here == "":  # the public face and the entry point join everything
        return
    used = rooms_of(imported_modules(ast.parse(path.read_text()))) - FLOOR - {here}
    allowed = set() if here in FLOOR else MAY_IMPORT[here]
    assert used <= allowed, f"{here} may not import {', '.join(sorted(used - allowed))}"


@pytest.mark.parametrize("name", sorted(FLOOR - {""}))
def test_the_floor_needs_only_the_standard_library(name):
    path = PACKAGE / f"{name}.py"
    packages = {module.split(".")[0] for module in imported_modules(ast.parse(path.read_text()))}
    assert packages <= sys.stdlib_module_names | {"asrnorm", "yaml"}
    assert "yaml" not in imported_modules(top_level(path))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_optional_libraries_are_imported_inside_functions(path):
    allowed = {"triton"} if path.parent.name in KERNEL_FOLDERS else set()
    assert not {m.split(".")[0] for m in imported_modules(top_level(path))} & OPTIONAL - allowed


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_kernels_are_imported_inside_functions(path):
    if path.parent.name in KERNEL_FOLDERS:
        return
    modules = imported_modules(top_level(path))
    assert not {name for name in modules if KERNEL_FOLDERS & set(name.split(".")[1:-1])}


@pytest.mark.parametrize("path", sorted((PACKAGE / "kernels").glob("*.py")), ids=lambda p: p.name)
def test_kernels_know_the_reference_and_nothing_else_of_the_norms(path):
    modules = imported_modules(ast.parse(path.read_text()))
    assert {name for name in modules if name.startswith("asrnorm.norms.")} <= {"asrnorm.norms.reference"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_are_short_and_named_for_what_they_hold(path):
    limit = LONGER_FOR_A_REASON.get(str(path.relative_to(PACKAGE)), MOST_LINES)
    assert len(path.read_text().splitlines()) <= limit
    assert path.stem not in BANNED_NAMES


def test_every_room_has_its_arrows():
    rooms = {room(path) for path in FILES} - FLOOR
    assert rooms == set(MAY_IMPORT)


def listed_files() -> dict[str, set[str]]:
    """Return what the table of ARCHITECTURE.md lists: room to names of files and folders."""
    found: dict[str, set[str]] = {}
    here = ""
    for line in (PACKAGE.parents[1] / "ARCHITECTURE.md").read_text().splitlines():
        cells = line.strip("| ").split(" | ") if line.startswith("|") else []
        if line.startswith("| |"):
            cells = ["", *line[3:].strip("| ").split(" | ")]
        if len(cells) == 3 and cells[1].startswith("`"):
            here = cells[0].strip("`") or here
            found.setdefault(here, set()).update(re.findall(r"`([^`]+)`", cells[1]))
    return found


def test_the_table_lists_every_file():
    listed = listed_files()
    for path in FILES:
        parts = path.relative_to(PACKAGE).parts
        if path.stem.startswith("__"):
            continue
        rows = listed["floor" if path.stem in FLOOR and len(parts) == 1 else parts[0].removesuffix(".py")]
        name = f"{parts[1]}/" if len(parts) > 2 else parts[-1]
        assert any(fnmatch(name, pattern) for pattern in rows), "/".join(parts)


def test_the_picture_names_every_room_and_the_floor():
    picture = (PACKAGE.parents[1] / "ARCHITECTURE.md").read_text().split("```")[1]
    assert (set(MAY_IMPORT) | FLOOR) - {""} <= set(re.findall(r"\w+", picture))
