"""A picture of every augmentation: `python -m tools.augmentation_sheet` writes `docs/assets/augmentations.jpg`.

The scenes are painted here, so that the docs hold nobody's photographs.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter

from asrnorm.data.augment import AUGMENTATIONS, augment

SIZE, GAP, LABEL = 96, 4, 92
OUT = Path(__file__).parents[1] / "docs" / "assets" / "augmentations.jpg"


def paint_scenes() -> torch.Tensor:
    """Return four painted scenes, uint8 `(4, 3, 96, 96)`."""
    rng = np.random.default_rng(0)
    images = []
    for sky, ground in (
        ((120, 180, 240), (90, 150, 60)),
        ((250, 170, 110), (130, 90, 60)),
        ((40, 50, 110), (70, 80, 90)),
        ((235, 235, 220), (200, 190, 170)),
    ):
        height = np.linspace(0, 1, 4 * SIZE)[:, None, None]
        field = np.array(sky) * (1 - 0.4 * height) + 60 * height + rng.normal(0, 4, (4 * SIZE, 4 * SIZE, 1))
        image = Image.fromarray(field.clip(0, 255).astype(np.uint8))
        draw = ImageDraw.Draw(image)
        draw.rectangle((0, 260, 384, 384), fill=ground)
        images.append(image)
    house, face, fish, plant = (ImageDraw.Draw(image) for image in images)
    house.rectangle((110, 160, 290, 320), fill=(200, 90, 70))
    house.polygon([(90, 165), (200, 70), (310, 165)], fill=(90, 50, 50))
    house.rectangle((180, 230, 230, 320), fill=(70, 50, 40))
    face.ellipse((90, 50, 300, 300), fill=(245, 205, 160), outline=(60, 40, 30), width=6)
    face.ellipse((140, 130, 170, 165), fill=(40, 40, 60))
    face.ellipse((220, 130, 250, 165), fill=(40, 40, 60))
    face.arc((140, 150, 250, 250), 20, 160, fill=(160, 40, 50), width=9)
    fish.ellipse((80, 120, 270, 250), fill=(230, 160, 50))
    fish.polygon([(250, 185), (340, 115), (340, 255)], fill=(240, 110, 60))
    fish.ellipse((115, 160, 140, 185), fill=(20, 20, 20))
    plant.rectangle((180, 150, 205, 320), fill=(110, 75, 40))
    for x, y in ((190, 90), (140, 140), (245, 140), (190, 170)):
        plant.ellipse((x - 60, y - 50, x + 60, y + 50), fill=(50, 120, 60), outline=(30, 90, 40), width=5)
    small = [np.asarray(image.filter(ImageFilter.GaussianBlur(1)).resize((SIZE, SIZE))) for image in images]
    return torch.from_numpy(np.stack(small)).permute(0, 3, 1, 2).contiguous()


def draw_sheet() -> Image.Image:
    """Return the scenes, and a row of two draws of every augmentation with a share of 1."""
    scenes = paint_scenes()
    rows = [("images", torch.cat([scenes, scenes]))]
    for name in AUGMENTATIONS.names():
        if name != "none":
            share = {"share": 1.0} if "share" in AUGMENTATIONS.options(name) else {}
            views = [augment(scenes, [{"name": name, **share}], seed=3, step=step) for step in range(2)]
            rows.append((name, torch.cat(views)))
    step = SIZE + GAP
    sheet = Image.new("RGB", (LABEL + 8 * step, len(rows) * step), "white")
    draw = ImageDraw.Draw(sheet)
    for i, (name, images) in enumerate(rows):
        draw.text((4, i * step + SIZE // 2 - 6), name, fill="black")
        for j, image in enumerate(images):
            sheet.paste(Image.fromarray(image.permute(1, 2, 0).numpy()), (LABEL + j * step, i * step))
    return sheet


def main() -> int:
    """Write the picture."""
    draw_sheet().save(OUT, quality=80, optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
