"""What an audit measures: how many images, which severities, which attacks, how wide a search."""

from dataclasses import dataclass

from asrnorm.evaluation import SignedSteps

GROUPS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "blur": ("defocus_blur", "gaussian_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness", "spatter"),
    "digital": ("contrast", "elastic_transform", "jpeg_compression", "pixelate", "saturate"),
}
"""The 19 corruptions by kind; the four that are not among the 15 of the benchmark stand with their like."""

CORRUPTIONS = tuple(name for names in GROUPS.values() for name in names)
_PGD_STEPS = 10


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The extent of an audit.

    Attributes:
        limit: the most images; `None` takes all.
        severities: of the corruptions.
        corruptions: their names.
        fgsm: radii of the one-step attack, in levels of a pixel of 255.
        pgd: radii of the attack in ten steps.
        candidates: random tuples of transformations that the search tries.
        search_images: images it judges them by, spread evenly.
        seed: of noise, random starts and the search.

    Example:
        >>> [attack.name for attack in Plan.quick().attacks]
        ['fgsm-0.5', 'fgsm-1', 'fgsm-2', 'pgd10-1']
    """

    limit: int | None = 500
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    corruptions: tuple[str, ...] = CORRUPTIONS
    fgsm: tuple[float, ...] = (0.5, 1, 2, 4, 8)
    pgd: tuple[float, ...] = (0.5, 1, 2, 4, 8)
    candidates: int = 100
    search_images: int = 200
    seed: int = 0

    @classmethod
    def quick(cls, *, limit: int | None = 100, seed: int = 0) -> "Plan":
        """Return a plan of minutes on two cores for a ResNet-18 at 224x224."""
        return cls(
            limit=limit,
            severities=(1, 3, 5),
            fgsm=(0.5, 1, 2),
            pgd=(1,),
            candidates=30,
            search_images=50,
            seed=seed,
        )

    @property
    def attacks(self) -> tuple[SignedSteps, ...]:
        """The attacks, weak ones first."""
        return (
            *(SignedSteps(level, 1) for level in self.fgsm),
            *(SignedSteps(level, _PGD_STEPS) for level in self.pgd),
        )
