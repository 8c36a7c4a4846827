"""The picture of a study that shows samples: the overviews of the suites at hand, one above the other."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from asrnorm.cli.data_show import SuiteDomains
from asrnorm.errors import InputError
from asrnorm.storage import replacing

SUITES = ("pacs", "cifar10c", "digits")
_PAPER = "#ffffff"


def draw_samples(path: Path, suites: Sequence[str] = SUITES) -> list[str]:
    """Write one picture with an image a class of every domain; return a line for each suite that is not there.

    Args:
        path: of the PNG; where no suite is there, none is written.
        suites: names of suites, from above to below.
    """
    from PIL import Image

    from asrnorm import data
    from asrnorm.data.contact_sheet import contact_sheet

    lines, sheets = [], []
    for name in suites:
        with TemporaryDirectory() as folder:
            try:
                suite = data.create_suite(name)
                overview = contact_sheet(SuiteDomains(suite), suite.classes, folder, per_class=1)[0]
            except InputError as error:
                lines.append(f"samples: {name} is left out: {error}")
                continue
            with Image.open(overview) as sheet:
                sheets.append(sheet.convert("RGB"))
    if sheets:
        size = max(sheet.width for sheet in sheets), sum(sheet.height for sheet in sheets)
        joined = Image.new("RGB", size, _PAPER)
        top = 0
        for part in sheets:
            joined.paste(part, (0, top))
            top += part.height
        with replacing(path) as temporary:
            joined.save(temporary, "PNG")
    return lines
