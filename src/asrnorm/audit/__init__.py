"""A robustness report on any model: accuracy on clean images, under corruption and attack, and what breaks it."""

from asrnorm.audit.images import LabeledImages as LabeledImages
from asrnorm.audit.images import read_images as read_images
from asrnorm.audit.load import load_model as load_model
from asrnorm.audit.model import AuditedModel as AuditedModel
from asrnorm.audit.model import AuditedModule as AuditedModule
from asrnorm.audit.model import InputSpec as InputSpec
from asrnorm.audit.page import write_audit as write_audit
from asrnorm.audit.result import Audit as Audit
from asrnorm.audit.result import Plan as Plan
from asrnorm.audit.run import run_audit as run_audit
