import pytest

import asrnorm
from asrnorm.errors import InputError


@pytest.mark.parametrize(
    "options", [{"hidden": 0}, {"channels": (0, 4)}, {"channels": [4, -1]}, {"num_classes": 0}], ids=str
)
def test_sizes_below_1_are_refused_in_one_line(options):
    with pytest.raises(InputError, match=r"^digits_convnet: (sizes|num_classes) must be at least 1, not "):
        asrnorm.create_model("digits_convnet", **options)


@pytest.mark.parametrize("channels", [3, [4], [4, "x"], "48"], ids=str)
def test_channels_that_are_no_pair_are_refused_in_one_line(channels):
    with pytest.raises(InputError, match=r"option 'channels' .* must be \[int, int\], not "):
        asrnorm.create_model("digits_convnet", channels=channels)
