"""Draws the figure of the README from the demo's kept results: `python -m tools.readme_figure`.

Images of the source and of the unseen domains beside the accuracy of four networks on the unseen ones. There is a file
for light pages and one for dark ones; both carry a hash of the results that they show, which a test compares.
"""

import base64
import hashlib
import io
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image

from asrnorm.core.files import write_whole
from asrnorm.data import create_suite
from asrnorm.data.contact_sheet import SuiteDomains

RESULTS = Path("results", "demo.jsonl")
FILES = {"light": Path("docs", "assets", "front-light.svg"), "dark": Path("docs", "assets", "front-dark.svg")}
# Bar: recipe.
BARS = {
    "BatchNorm": "digits_mini.erm_bn",
    "instance norm": "digits_mini.erm_in",
    "ASR-Norm": "digits_mini.erm_asr",
    "best recipe (ASR-Norm)": "digits_mini.best",
}
_INK = {"light": ("#1b1b1c", "#5f5f5f"), "dark": ("#e6e6e6", "#a8a8a8")}  # letters, faint letters
_BAR = {"light": "#0072B2", "dark": "#3d9ad6"}
# Narrow, so that letters are legible on a phone.
_SIZE, _ROW, _TILE, _WIDTH = (520, 292), 58, 44, 188  # rows and tiles of images, four tiles side by side
_LEFT, _CHART, _LENGTH = 84, 300, 230  # x of the images and of the bars, length of a bar of 100 %


Bars = Mapping[str, Sequence[tuple[float, float]]]  # by name: accuracy on the unseen domains and on the source, by seed


def read_accuracies(path: Path) -> Bars:
    """Return the accuracies of every bar in percent."""
    results = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {
        bar: [(100 * r["average_accuracy"], 100 * r["source"]["accuracy"]) for r in results if r["recipe"] == recipe]
        for bar, recipe in BARS.items()
    }


def fingerprint(bars: Bars) -> str:
    """Return twelve hex digits over the numbers that the figure shows."""
    return hashlib.sha256(json.dumps(bars).encode()).hexdigest()[:12]


def draw(bars: Bars, tiles: Mapping[str, bytes], look: str) -> str:
    """Return the SVG.

    Args:
        bars: accuracies in percent by name, of every seed.
        tiles: a PNG of images in a row, by domain; the first is the source.
        look: `light` or `dark`.
    """
    ink, faint = _INK[look]
    parts = [_text(0, 16, "trained on", faint), _text(0, 16 + _ROW, "never seen", faint)]
    for row, (domain, png) in enumerate(tiles.items()):
        y = row * _ROW + 2
        uri = f"data:image/png;base64,{base64.b64encode(png).decode()}"
        parts.append(f'<image x="{_LEFT}" y="{y}" width="{_WIDTH}" height="{_TILE}" href="{uri}"/>')
        parts.append(_text(0, y + 34, domain, ink, 16))
    parts.append(_text(_CHART, 16, "never seen: accuracy in %", faint))
    for row, (name, values) in enumerate(bars.items()):
        y, unseen = 26 + row * 61, [seed[0] for seed in values]
        mean, low, high = (_LENGTH * end / 100 for end in (statistics.fmean(unseen), min(unseen), max(unseen)))
        parts.append(_text(_CHART, y + 14, name, ink, 16))
        parts.append(f'<rect x="{_CHART}" y="{y + 21}" width="{mean:.1f}" height="20" rx="2" fill="{_BAR[look]}"/>')
        parts.append(f'<path d="M{_CHART + low:.1f} {y + 31}H{_CHART + high:.1f}" stroke="{ink}" stroke-width="2"/>')
        number = f"{statistics.fmean(unseen):.0f}"
        parts.append(_text(_CHART + max(high, mean) + 8, y + 37, number, ink, 17, "bold"))
    source = [statistics.fmean(seed[1] for seed in values) for values in bars.values()]
    words = f"on new mnist digits: {min(source):.0f} to {max(source):.0f}"
    parts.append(_text(_CHART, _SIZE[1] - 10, words, faint))
    size = f'viewBox="0 0 {_SIZE[0]} {_SIZE[1]}" width="{_SIZE[0]}" height="{_SIZE[1]}"'
    return (
        f"<!-- drawn from {fingerprint(bars)} -->\n"
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, Helvetica, Arial, sans-serif">\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, color: str, size: int = 14, weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" fill="{color}">{escape(text)}</text>'
    )


def pick_tiles() -> dict[str, bytes]:
    """Return a PNG of four digits of every domain of `digits_mini`, the source first: 3, 5, 2, 8."""
    suite = create_suite("digits_mini")
    return {name: _join(images, labels) for name, (images, labels) in SuiteDomains(suite).items()}


def _join(images: np.ndarray, labels: np.ndarray) -> bytes:
    rows = [np.flatnonzero(labels == digit)[7] for digit in (3, 5, 2, 8)]  # any index does
    side = images[0].shape[0]
    sheet = Image.new("RGBA", (len(rows) * (side + 3) - 3, side))
    for index, row in enumerate(rows):
        sheet.paste(Image.fromarray(np.asarray(images[row])), (index * (side + 3), 0))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def main(root: Path) -> None:
    """Write both files of a source tree."""
    bars, tiles = read_accuracies(root / RESULTS), pick_tiles()
    for look, path in FILES.items():
        write_whole(root / path, draw(bars, tiles, look))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
