import pytest

from asrnorm.errors import InputError
from asrnorm.training.distributed import choose_device


@pytest.mark.parametrize("name", ["meta", "xpu:0"])
def test_a_device_that_nothing_here_runs_on_is_refused_in_one_line(name):
    with pytest.raises(InputError, match=f"^device '{name}' cannot be used: it must be one of auto, cpu, cuda, mps$"):
        choose_device(name)


@pytest.mark.parametrize("name", ["nowhere", ""])
def test_what_is_no_device_is_refused_in_one_line(name):
    with pytest.raises(InputError, match=f"^device '{name}': ") as caught:
        choose_device(name)
    assert "\n" not in str(caught.value)
