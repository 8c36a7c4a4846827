import pytest

from helpers.small_study import collect_small


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    return collect_small(tmp_path_factory.mktemp("small") / "runs")
