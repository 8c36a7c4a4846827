"""Replace the norm layers of any network, keep their trained values, and undo it."""

from asrnorm.conversion.blocks import BLOCKS as BLOCKS
from asrnorm.conversion.blocks import Block as Block
from asrnorm.conversion.blocks import insert as insert
from asrnorm.conversion.blocks import remove as remove
from asrnorm.conversion.calibration import calibrate as calibrate
from asrnorm.conversion.calibration import confine as confine
from asrnorm.conversion.calibration import reestimate as reestimate
from asrnorm.conversion.swap import conversion_summary as conversion_summary
from asrnorm.conversion.swap import convert as convert
from asrnorm.conversion.swap import revert as revert
