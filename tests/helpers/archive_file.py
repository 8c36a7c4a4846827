"""Small archives to be unpacked."""

import io
import tarfile
import warnings
import zipfile

FILES = {"set/a.txt": b"alpha", "set/deep/b.bin": bytes(range(256)) * 40, "set/empty": b""}


def keep(name):
    return name


def make_zip(path, files=FILES, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # duplicate names are what some tests want
        for name, data in files.items() if isinstance(files, dict) else files:
            made.writestr(name, data)
    return path


def make_tar(path, files=FILES, mode="w:gz", extra=()):
    with tarfile.open(path, mode) as made:
        for name, data in files.items() if isinstance(files, dict) else files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
        for info in extra:
            made.addfile(info)
    return path
