"""What all norms refuse."""

import pytest

from asrnorm.errors import InputError
from asrnorm.norms import NORMS, create_norm


@pytest.mark.parametrize("name", [name for name in NORMS if "eps" in NORMS.options(name) and name != "none"])
@pytest.mark.parametrize("eps", [-1.0, float("nan")])
def test_an_epsilon_without_a_root_is_refused(name, eps):
    with pytest.raises(InputError, match="eps must be at least 0, not"):
        create_norm(name, 8, eps=eps)
    create_norm(name, 8, eps=0.0)
