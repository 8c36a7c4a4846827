"""Who may import whom: the picture in ARCHITECTURE.md, enforced."""

import ast
import re
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "asrnorm"

# Every package may import `core`; the entries are what else it may import.
MAY_IMPORT = {
    "core": set(),
    "kernels": {"norms", "data"},  # the reference, for second derivatives; what images are augmented with
    "norms": {"kernels"},  # inside functions
    "ops": {"norms"},
    "conversion": {"norms"},
    "models": {"kernels", "norms", "conversion"},
    "data": {"kernels"},  # inside functions
    "methods": {"models", "data"},
    "evaluation": {"models", "data", "methods"},
    "training": {"kernels", "norms", "conversion", "models", "data", "methods", "evaluation"},
    "exporting": {"ops", "norms", "models", "data", "evaluation", "training"},
    "recipes": set(),
    "studies": {"recipes"},
    "reporting": {"studies"},
    "launch": {"recipes", "studies"},
    "audit": {"models", "data", "methods", "evaluation", "training", "reporting"},
    "bench": {
        *("ops", "norms", "conversion", "models", "data", "methods", "evaluation", "training", "recipes", "launch"),
    },
}
MAY_IMPORT["cli"] = set(MAY_IMPORT)

# The modules of `core` that need torch; the others open with the standard library alone (yaml inside functions).
CORE_WITH_TORCH = {
    "captured_step",
    "cuda_graph",
    "device_memory",
    "distributed",
    "frozen_eval",
    "precision",
    "randomness",
}
CORE_LIBRARIES = {"rich", "yaml"}
WITHOUT_TORCH = {"recipes", "studies", "reporting", "launch"}

# Imported where they are used, never by importing the package. Modules of `kernels` are compiled from their source and
# so import Triton at the top; only functions import them.
OPTIONAL = {
    *("torchvision", "timm", "triton", "ray", "submitit", "onnx", "onnxscript", "onnxruntime", "safetensors"),
    *("yaml", "matplotlib", "jinja2", "pooch", "tensorboard", "mlflow", "wandb", "huggingface_hub"),
}
BANNED_NAMES = {"utils", "misc", "helpers", "common"}


def package_of(path: Path) -> str:
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


def imported_at_once(tree: ast.Module) -> set[str]:
    """Return what importing a file imports: all but what its functions and classes import."""
    body = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    type_checking = [n for n in body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    return imported_modules(ast.Module([node for node in body if node not in type_checking], []))


def libraries(modules: set[str]) -> set[str]:
    return {module.split(".")[0] for module in modules}


FILES = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def test_imports_follow_the_arrows():
    for path, tree in FILES.items():
        here = package_of(path)
        if here == "":  # the public face and the entry point join everything
            continue
        used = {name.split(".")[1] for name in imported_modules(tree) if name.startswith("asrnorm.")}
        forbidden = (used & set(MAY_IMPORT)) - MAY_IMPORT[here] - {here, "core"}
        assert not forbidden, f"{path.relative_to(PACKAGE)} may not import {', '.join(sorted(forbidden))}"


def test_core_needs_only_the_standard_library():
    for path in sorted((PACKAGE / "core").glob("*.py")):
        used = libraries(imported_modules(FILES[path])) - sys.stdlib_module_names - {"asrnorm"}
        assert used <= CORE_LIBRARIES | ({"torch"} if path.stem in CORE_WITH_TORCH else set()), path.name


def test_what_plans_and_shows_needs_no_torch():
    for path, tree in FILES.items():
        if package_of(path) in WITHOUT_TORCH:
            assert "torch" not in libraries(imported_at_once(tree)), path.relative_to(PACKAGE)


def test_optional_libraries_and_kernels_are_imported_inside_functions():
    for path, tree in FILES.items():
        modules = imported_at_once(tree)
        if package_of(path) == "kernels":
            assert not libraries(modules) & OPTIONAL - {"triton"}, path.relative_to(PACKAGE)
        else:
            assert not libraries(modules) & OPTIONAL, path.relative_to(PACKAGE)
            kernels = {name for name in modules if name.startswith("asrnorm.kernels.")}
            assert not kernels, path.relative_to(PACKAGE)


def test_kernels_know_the_reference_and_nothing_else_of_the_norms():
    for path in (PACKAGE / "kernels").glob("*.py"):
        used = {name for name in imported_modules(FILES[path]) if name.startswith("asrnorm.norms.")}
        assert {name for name in used if not name.startswith("asrnorm.norms.reference")} == set(), path.name


def test_files_are_named_for_what_they_hold():
    assert not [path for path in FILES if path.stem in BANNED_NAMES]


def test_every_package_has_its_arrows_and_stands_in_the_picture():
    packages = {package_of(path) for path in FILES} - {""}
    assert packages == set(MAY_IMPORT)
    picture = (PACKAGE.parents[1] / "ARCHITECTURE.md").read_text().split("```")[1]
    assert packages <= set(re.findall(r"\w+", picture))
