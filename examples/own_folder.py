"""Train on one domain of your own images and test on the others: one folder per domain, one per class inside.

python examples/own_folder.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import asrnorm

DOMAINS = {"day": ("white", "navy"), "night": ("black", "orange")}
CLASSES = ("disc", "square")


def draw_domains(root: Path, count: int = 10) -> None:
    """Write `root/<domain>/<class>/<number>.png`, the layout that `asrnorm` reads."""
    rng = np.random.default_rng(0)
    for domain, (ground, ink) in DOMAINS.items():
        for label in CLASSES:
            folder = root / domain / label
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                image = Image.new("RGB", (48, 48), ground)
                left, top = rng.integers(2, 20, size=2).tolist()
                box = (left, top, left + 24, top + 24)
                draw = ImageDraw.Draw(image)
                (draw.ellipse if label == "disc" else draw.rectangle)(box, fill=ink)
                image.save(folder / f"{number}.png")


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "own_images")
    draw_domains(root)
    suite = asrnorm.create_suite("folder", root=root, source="day", size=64)
    print(f"classes: {', '.join(suite.classes)}; source: {', '.join(suite.sources)}")
    print(f"train {len(suite.train)}, validation {len(suite.validation)} images")
    for name in suite.target_names:
        print(f"target {name}: {len(suite.targets[name])} images")
    print("now train on the day and see how it does at night:")
    print(f"asrnorm train folder.best --data {root} --source day --scale smoke")


if __name__ == "__main__":
    main()
