"""Measure commands on large inputs and write the table into docs/speed.md: `python -m tools.scale`.

It makes 50,000 JPEG files of 64 x 64 pixels, two domains of ten classes, and 100,000 kept results, all temporary.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

import asrnorm
from asrnorm.core.results import DomainScore, RunResult, to_plain

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
BEGIN, END = "<!-- scale -->\n", "<!-- end scale -->\n"
IMAGES, LINES = 50_000, 100_000
TRAIN = ("train", "folder.erm_bn", "--data", "photos", "--source", "day", "--scale", "smoke", "--device", "cpu")
COMMANDS = {
    "`train` of the smallest run, images not yet decoded": (*TRAIN, "--out", "first"),
    "the same with decoded images": (*TRAIN, "--out", "second"),
    "`data show`, images not yet decoded": (
        "data",
        "show",
        "folder",
        "--data",
        "photos",
        "--source",
        "day",
        "--out",
        "sheets",
    ),
    f"`report table1` beside {LINES:,} kept results": ("report", "table1"),
}


def make_photos(folder: Path) -> None:
    """Write the images, noise that compresses as photographs do."""
    draw = np.random.default_rng(0)
    for domain in ("day", "night"):
        for label in range(10):
            (folder / domain / f"class{label}").mkdir(parents=True)
    for number in range(IMAGES):
        pixels = draw.integers(0, 255, (8, 8, 3), dtype=np.uint8)
        path = folder / ("night", "day")[number % 2] / f"class{number // 2 % 10}" / f"{number}.jpg"
        Image.fromarray(pixels).resize((64, 64)).save(path, quality=80)


def make_results(path: Path) -> None:
    """Write valid results, each of another config."""
    score = DomainScore(name="a", accuracy=0.5, brier=0.05, brier_sum=0.5, nll=1.0, ece=0.1, num_samples=100)
    fixed = {"recipe": "digits.erm_bn", "scale": "paper", "seed": 0, "commit": "a" * 40, "selection": "last"}
    fixed |= {"num_parameters": 1, "missing": (), "average_accuracy": 0.5, "adversarial": {}, "wall_seconds": 1.0}
    with path.open("w") as file:
        for number in range(LINES):
            digest = hashlib.sha256(str(number).encode()).hexdigest()[:10]
            result = RunResult(config_hash=digest, source=score, domains=(score,), steps=1, **fixed)  # type: ignore[arg-type]
            file.write(json.dumps(to_plain(result)) + "\n")


def measure(words: tuple[str, ...], folder: Path) -> tuple[float, float]:
    """Run a command in a process of its own; return its CPU seconds and its peak memory in GB."""
    source = str(Path(asrnorm.__file__).parents[1])
    own = {"ASRNORM_CACHE": str(folder / "cache"), "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": source}
    child = subprocess.Popen(
        [sys.executable, "-m", "asrnorm", *words],
        cwd=folder,
        env={**os.environ, **own},
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(words)}: status {status}")
    unit = 1 if sys.platform == "darwin" else 1024
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 1e9


def main() -> None:
    """Measure every command and replace the table of the page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_photos(folder / "photos")
        (folder / "results").mkdir()
        make_results(folder / "results" / "table1.jsonl")
        rows = []
        for label, words in COMMANDS.items():
            started = time.monotonic()
            seconds, memory = measure(words, folder)
            rows.append(f"| {label} | {seconds:.0f} | {time.monotonic() - started:.0f} | {memory:.2f} |\n")
            print(rows[-1], end="", flush=True)  # noqa: T201
        cache = sum(path.stat().st_size for path in (folder / "cache").rglob("*") if path.is_file())
    head = "| | CPU s | s | peak GB |\n| --- | ---: | ---: | ---: |\n"
    commit = subprocess.check_output(["git", "rev-parse", "--short=8", "HEAD"], text=True, cwd=PAGE.parent).strip()
    note = (
        f"\n{IMAGES:,} images of 64 x 64; the decoded ones of the run take {cache / 1e9:.1f} GB of disk. "
        f"One measurement, {os.cpu_count()} CPU cores, commit {commit}.\n"
    )
    text = PAGE.read_text("utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(before + BEGIN + head + "".join(rows) + note + END + after, "utf-8")


if __name__ == "__main__":
    main()
