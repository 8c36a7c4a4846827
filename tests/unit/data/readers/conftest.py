import pytest


@pytest.fixture
def write(tmp_path):
    """Write bytes to a file and return its path."""

    def write(data, name="file"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write
