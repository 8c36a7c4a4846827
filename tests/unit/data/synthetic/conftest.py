import pytest

from asrnorm.data.synthetic.mnist_subset import load_mnist_subset


@pytest.fixture(scope="session")
def subset():
    """The 5,000 MNIST digits."""
    return load_mnist_subset()
