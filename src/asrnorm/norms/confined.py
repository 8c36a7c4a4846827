"""Limits to what a layer may learn to subtract, found on source images after training."""

from typing import Any

import torch
from torch import Tensor

from asrnorm.core.errors import InputError
from asrnorm.norms.switchable import TracksBatch

_NAMES = ("shift_least", "shift_most")


class ConfinesShift(TracksBatch):
    """A layer that learns a mean to subtract, and can be kept from straying further from the sample's than it has.

    Paper: has no such limit. A subclass has `standardize` and `gamma_bias`.
    """

    standardize: bool
    gamma_bias: Tensor
    shift_least: Tensor | None
    shift_most: Tensor | None

    def start_free(self) -> None:
        """Register the limits as absent."""
        for name in _NAMES:
            self.register_buffer(name, None)

    @property
    def limits(self) -> tuple[Tensor, Tensor] | None:
        """The least and the most that `mu_stan` may differ from the mean, in deviations; `None` as in the paper."""
        return None if self.shift_least is None or self.shift_most is None else (self.shift_least, self.shift_most)

    def confine(self, least: Tensor | None, most: Tensor | None) -> None:
        """Confine `mu_stan` to a range around the sample's mean; `None` for both sets it free.

        Paper: has no such limit. They are kept with the weights; `asrnorm.confine` finds them.

        Args:
            least: in standard deviations of the sample, `(c,)`.
            most: likewise.

        Raises:
            InputError: the layer learns no standardization, one limit without the other, or of another shape.

        Example:
            >>> from asrnorm.norms import ASRNorm2d
            >>> layer = ASRNorm2d(2)
            >>> layer.confine(-torch.ones(2), torch.ones(2))
            >>> sorted(name for name, _ in layer.named_buffers())
            ['shift_least', 'shift_most']
        """
        if least is not None and most is not None:
            if not self.standardize:
                raise InputError(f"{self.label()}: it learns no standardization that could be confined")
            shapes = {tuple(least.shape), tuple(most.shape)}
            if shapes != {(self.num_features,)} or not bool((least <= most).all()):  # NaN is neither
                raise InputError(
                    f"{self.label()}: limits are ({self.num_features},) each, the least not above the most"
                )
            like = self.gamma_bias
            with torch.inference_mode(False):  # a tensor made in that mode could not be trained through
                least, most = (limit.detach().clone().to(like.device, like.dtype) for limit in (least, most))
        elif least is not None or most is not None:
            raise InputError(f"{self.label()}: give both limits, or None for both")
        self.shift_least, self.shift_most = least, most

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled layer, also one of a version without limits."""
        super().__setstate__(state)
        for name in _NAMES:
            self._buffers.setdefault(name, None)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Take up the limits that weights come with; weights without any leave the layer free."""
        given = [state_dict[key] for name in _NAMES if (key := f"{prefix}{name}") in state_dict]
        if not given and f"{prefix}gamma_bias" in state_dict:
            self.shift_least = self.shift_most = None
        if self.standardize and self.limits is None and len(given) == len(_NAMES):
            shapes = [tuple(limit.shape) for limit in given]
            if set(shapes) == {(self.num_features,)}:
                like = self.gamma_bias
                with torch.inference_mode(False):
                    # Plain tensors, also where the parameters are sharded.
                    self.shift_least, self.shift_most = (
                        torch.zeros(self.num_features, device=like.device, dtype=like.dtype) for _ in _NAMES
                    )
            else:
                rest[-1].append(f"size mismatch for {prefix}{_NAMES[0]}: {shapes}, expected ({self.num_features},)")
        super()._load_from_state_dict(state_dict, prefix, *rest)
