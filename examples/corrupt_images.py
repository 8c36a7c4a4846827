"""Corrupt images like CIFAR-10-C and ImageNet-C; the seed determines the result.

python examples/corrupt_images.py [FOLDER]   (needs: pip install "asrnorm[data]")
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

import asrnorm


def draw_picture(side: int = 64) -> np.ndarray:
    """Return a gradient with a disc in it, to show the effect of each corruption."""
    rows, columns = np.mgrid[:side, :side] / side
    picture = np.stack([rows, columns, 1 - rows], axis=-1)
    picture[(rows - 0.5) ** 2 + (columns - 0.5) ** 2 < 0.08] = (0.9, 0.8, 0.2)
    return (255 * picture).astype(np.uint8)


def main() -> None:
    images = np.stack([draw_picture()] * 2)
    rows = []
    for name in ("gaussian_noise", "contrast", "brightness", "jpeg_compression"):
        versions = [asrnorm.corrupt(images, name, severity=severity, seed=0) for severity in (1, 3, 5)]
        changes = [np.abs(version.astype(int) - images).mean() for version in versions]
        print(f"{name:17}" + "  ".join(f"severity {s}: {c:5.1f}" for s, c in zip((1, 3, 5), changes, strict=True)))
        rows.append(np.concatenate([images[0], *(version[0] for version in versions)], axis=1))
    if len(sys.argv) > 1:
        path = Path(sys.argv[1]) / "corrupted.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.concatenate(rows)).save(path)
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
