"""The random numbers of methods, as `core/randomness.py` defines them."""

from asrnorm.core.randomness import draw_key as draw_key
from asrnorm.core.randomness import keyed_generator as keyed_generator
from asrnorm.core.randomness import uniform_noise as uniform_noise
