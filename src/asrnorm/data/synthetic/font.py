"""The fonts inside matplotlib's wheel whose digits are digits."""

from functools import lru_cache
from pathlib import Path

from PIL import ImageFont

from asrnorm.data.synthetic.dependency import require
from asrnorm.errors import MissingDependencyError

# A list rather than a search: cmex10 and cmsy10 hold ten different brackets and arrows where digits belong, others
# hold nothing or boxes, and a fixed order keeps the images the same when matplotlib adds a font.
DIGIT_FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSans-BoldOblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-Oblique",
    "DejaVuSansMono-BoldOblique",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "DejaVuSerif-BoldItalic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralItalic",
    "STIXGeneralBolIta",
    "cmb10",
    "cmmi10",
    "cmr10",
    "cmss10",
    "cmti10",
    "cmtt10",
)


@lru_cache(maxsize=512)
def load_font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """Return one of `DIGIT_FONTS` at a size in pixels.

    Raises:
        MissingDependencyError: matplotlib or the font file in it is not there.
    """
    # BASIC, since Raqm is not in every build of Pillow and would kern differently.
    return ImageFont.truetype(str(font_folder() / f"{name}.ttf"), size, layout_engine=ImageFont.Layout.BASIC)


@lru_cache(maxsize=1)
def font_folder() -> Path:
    """Return where matplotlib keeps its fonts, once all of `DIGIT_FONTS` are known to be there.

    Raises:
        MissingDependencyError: matplotlib or one of the files is not there.
    """
    matplotlib = require("matplotlib", "matplotlib", "rendered digits")
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    for name in DIGIT_FONTS:
        if not (folder / f"{name}.ttf").is_file():
            raise MissingDependencyError(
                f"rendered digits need {name}.ttf in {folder}, which this matplotlib lacks; "
                "pip install --force-reinstall matplotlib"
            )
    return folder
