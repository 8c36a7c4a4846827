"""timm networks whose features are maps `(n, c, h, w)`, as classifiers in three parts."""

from torch import Tensor, nn

from asrnorm.conversion import convert
from asrnorm.core.errors import InputError, first_line, import_extra
from asrnorm.models.base import MODELS, Classifier, NormFactory


class TimmNetwork(Classifier):
    """A timm network by its name there, such as `resnet50` or `tf_efficientnet_lite0`."""

    def __init__(self, architecture: str, *, num_classes: int = 1000) -> None:
        super().__init__()
        self.architecture, self.num_classes = architecture, num_classes
        timm = import_extra("timm", "model 'timm'", "timm", "vision")
        try:
            self.network = timm.create_model(architecture, pretrained=False, num_classes=num_classes)
        except (RuntimeError, ValueError) as error:
            raise InputError(f"timm cannot make {architecture!r}: {first_line(error)}") from error

    def loadable(self) -> tuple[nn.Module, str]:
        """Return timm's network and the name of its classifier."""
        classifier = self.network.get_classifier()
        return self.network, next(name for name, module in self.network.named_modules() if module is classifier)

    def features(self, x: Tensor) -> Tensor:
        """Return timm's features; they must be maps."""
        maps: Tensor = self.network.forward_features(x)
        if maps.ndim != 4:
            raise InputError(f"timm's {self.architecture} has features of shape {tuple(maps.shape)}, not maps")
        return maps

    def embed(self, maps: Tensor) -> Tensor:
        """Return the pooled features, as timm's head sees them."""
        pooled: Tensor = self.network.forward_head(maps, pre_logits=True)
        return pooled

    def classify(self, embedding: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.network.get_classifier()(embedding)
        return logits


@MODELS.register("timm")
def timm_network(
    *, norm_layer: NormFactory | None = None, architecture: str = "resnet50", num_classes: int = 1000
) -> TimmNetwork:
    """Any network of timm that has maps, by its name there; needs timm."""
    model = TimmNetwork(architecture, num_classes=num_classes)
    if norm_layer is not None:
        convert(model, norm_layer, layers="all")
    return model
