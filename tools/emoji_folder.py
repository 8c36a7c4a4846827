"""Make a folder of emoji in four styles, one domain each, from npm's emoji-datasource packages: images for a trial.

`npm pack emoji-datasource-apple@15.1.2`, and so on for the other styles; unpack each into a folder of the style's name;
`python -m tools.emoji_folder . emoji`; then `asrnorm train folder.best --data emoji --source apple`.
"""

import json
import shutil
import sys
from pathlib import Path

STYLES = ("apple", "facebook", "google", "twitter")
CLASSES = {
    "animal": ("animal-mammal", "animal-bird", "animal-bug", "animal-marine", "animal-reptile", "animal-amphibian"),
    "clothing": ("clothing",),
    "face": ("face-smiling", "face-affection", "face-tongue", "face-neutral-skeptical", "face-sleepy", "face-unwell"),
    "food": ("food-fruit", "food-vegetable", "food-prepared", "food-asian", "food-sweet", "food-marine"),
    "person": ("person-role", "person-fantasy", "person-activity"),
    "place": ("place-building", "place-other", "place-religious", "place-geographic"),
    "plant": ("plant-flower", "plant-other"),
    "vehicle": ("transport-ground", "transport-air", "transport-water"),
    "weather": ("sky & weather",),
}


def main(packages: Path, out: Path) -> None:
    """Copy the images of 64 pixels to `out/<style>/<class>/`."""
    for style in STYLES:
        package = packages / style / "package"
        for emoji in json.loads((package / "emoji.json").read_text()):
            classes = [name for name, parts in CLASSES.items() if emoji["subcategory"] in parts]
            image = package / "img" / style / "64" / emoji["image"]
            if classes and image.is_file():
                folder = out / style / classes[0]
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy(image, folder)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: python -m tools.emoji_folder FOLDER_OF_PACKAGES OUT")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
