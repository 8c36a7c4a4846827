"""The paper's tables and figures: which runs they need, what was found of them, how they compare. No torch here."""

from asrnorm.studies.archive import archive as archive
from asrnorm.studies.collect import Collected as Collected
from asrnorm.studies.collect import collect as collect
from asrnorm.studies.loader import load_study as load_study
from asrnorm.studies.plan import Plan as Plan
from asrnorm.studies.plan import plan as plan
from asrnorm.studies.spec import ANALYSIS_FILES as ANALYSIS_FILES
from asrnorm.studies.spec import DIVERGENCE_FILE as DIVERGENCE_FILE
from asrnorm.studies.spec import STUDIES as STUDIES
from asrnorm.studies.spec import Cell as Cell
from asrnorm.studies.spec import Comparison as Comparison
from asrnorm.studies.spec import Evaluation as Evaluation
from asrnorm.studies.spec import Measure as Measure
from asrnorm.studies.spec import Printed as Printed
from asrnorm.studies.spec import Row as Row
from asrnorm.studies.spec import RunSpec as RunSpec
from asrnorm.studies.spec import Study as Study
from asrnorm.studies.spec import get_study as get_study
from asrnorm.studies.spec import list_studies as list_studies
