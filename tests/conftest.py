"""One thread, fixed seeds, deterministic hypothesis: a failure can be met again."""

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "asrnorm",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("asrnorm")
torch.set_num_threads(1)

# Imported for their doctests, they would register a study of toys for all tests of the process.
collect_ignore = ["helpers/toy_study.py", "helpers/ray_torture.py"]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)
