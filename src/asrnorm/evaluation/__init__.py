"""Evaluation of a model: scores by domain, accuracy under attack, predictions, and learned statistics."""

from asrnorm.evaluation.attacks import ATTACKS as ATTACKS
from asrnorm.evaluation.attacks import SignedSteps as SignedSteps
from asrnorm.evaluation.attacks import score_attacks as score_attacks
from asrnorm.evaluation.learned_statistics import learned_statistics as learned_statistics
from asrnorm.evaluation.metrics import ALEXNET_ERRORS as ALEXNET_ERRORS
from asrnorm.evaluation.metrics import Tally as Tally
from asrnorm.evaluation.metrics import decompose_brier as decompose_brier
from asrnorm.evaluation.metrics import mean_corruption_error as mean_corruption_error
from asrnorm.evaluation.predict import predict as predict
from asrnorm.evaluation.predict import predict_files as predict_files
from asrnorm.evaluation.score import SuiteScore as SuiteScore
from asrnorm.evaluation.score import score as score
from asrnorm.evaluation.score import score_domains as score_domains
from asrnorm.evaluation.score import score_suite as score_suite
