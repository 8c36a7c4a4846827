"""Where the norm layers of a network sit: every place that refers to each of them."""

from dataclasses import dataclass

from torch import nn

from asrnorm.conversion.kind import Recognized, Unsupported, recognize


@dataclass(frozen=True)
class Site:
    """One norm layer: its places (more than one where the network shares it) and what it is."""

    module: nn.Module
    places: tuple[tuple[nn.Module, str], ...]
    names: tuple[str, ...]
    what: Recognized | Unsupported

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]


def find_sites(model: nn.Module) -> list[Site]:
    """Return the norm layers of a model in the order of registration.

    Example:
        >>> [site.name for site in find_sites(nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8)))]
        ['1']
    """
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    names: dict[int, list[str]] = {}
    modules: dict[int, nn.Module] = {}
    for prefix, parent in model.named_modules():
        for child_name, child in parent._modules.items():
            if child is None:
                continue
            modules[id(child)] = child
            places.setdefault(id(child), []).append((parent, child_name))
            names.setdefault(id(child), []).append(f"{prefix}.{child_name}" if prefix else child_name)
    order = {id(module): index for index, module in enumerate(model.modules())}
    sites = []
    for key in sorted(modules, key=order.__getitem__):
        what = recognize(modules[key])
        if what is not None:
            sites.append(Site(modules[key], tuple(places[key]), tuple(names[key]), what))
    return sites
