"""Run what a study lacks, on this machine, a Ray cluster or Slurm."""

from asrnorm.launch.jobs import Ended as Ended
from asrnorm.launch.jobs import Executor as Executor
from asrnorm.launch.jobs import Job as Job
from asrnorm.launch.jobs import gather_jobs as gather_jobs
from asrnorm.launch.local import LocalExecutor as LocalExecutor
from asrnorm.launch.queue import Failure as Failure
from asrnorm.launch.queue import Outcome as Outcome
from asrnorm.launch.queue import launch as launch
