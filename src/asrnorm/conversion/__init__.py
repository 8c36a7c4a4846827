"""Exchange the norm layers of any network, keep what they learned, and undo it."""

from asrnorm.conversion.select import PRESETS as PRESETS
from asrnorm.conversion.summary import ConversionSummary as ConversionSummary
from asrnorm.conversion.swap import conversion_summary as conversion_summary
from asrnorm.conversion.swap import convert as convert
from asrnorm.conversion.swap import revert as revert
