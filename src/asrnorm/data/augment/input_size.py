"""The size in which a network sees images: one rule for training, selection, evaluation and export."""

PACS_SIZE, PACS_CROP = (227, 227), (222, 222)  # images as published, and as RSC and JiGen cut and test them


def network_size(augment: str, image_size: tuple[int, int]) -> tuple[int, int]:
    """Return the size of a network's input: 222 for images of 227 under the PACS set, else the images' own.

    Trained on crops of that size, it is tested on whole images resized to it.

    Args:
        augment: what the network is trained with, as the config names it.
        image_size: height and width of the suite's images.

    Example:
        >>> network_size("pacs", (227, 227)), network_size("pacs", (64, 64)), network_size("none", (227, 227))
        ((222, 222), (64, 64), (227, 227))
    """
    return PACS_CROP if augment == "pacs" and image_size == PACS_SIZE else image_size
