"""A robustness report on any model: its worth on clean images, under corruption and attack, and what breaks it."""

from asrnorm.audit.load import load_subject as load_subject
from asrnorm.audit.page import write_audit as write_audit
from asrnorm.audit.picture import Pictures as Pictures
from asrnorm.audit.picture import read_pictures as read_pictures
from asrnorm.audit.plan import Plan as Plan
from asrnorm.audit.result import Audit as Audit
from asrnorm.audit.run import run_audit as run_audit
from asrnorm.audit.subject import ModuleSubject as ModuleSubject
from asrnorm.audit.subject import Subject as Subject
