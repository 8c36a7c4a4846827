"""Export of a trained model to ONNX, torch.export or weights, compared with the model and described in a card."""

from asrnorm.exporting.base import ExportRequest as ExportRequest
from asrnorm.exporting.export import export_run as export_run
from asrnorm.exporting.formats import FORMATS as FORMATS
from asrnorm.exporting.formats import load_weight_file as load_weight_file
from asrnorm.exporting.hub import export_hub as export_hub
