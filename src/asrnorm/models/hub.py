"""Networks as folders and repositories of the Hugging Face Hub: weights, `config.json` and a model card.

`model.safetensors` is the file of `asrnorm.save`, so that a converted network comes back converted. `huggingface_hub`
is needed to reach the Hub, and imported there only; local folders do without.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

import asrnorm
from asrnorm.core.errors import InputError, import_extra
from asrnorm.core.files import write_whole
from asrnorm.models.saved_model import load, save
from asrnorm.models.weights import read_metadata

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
_REPOSITORY = re.compile(r"\w[\w.-]*/[\w.-]+")
_USE = """## Use

```python
import asrnorm

model = asrnorm.from_pretrained("FOLDER_OR_REPOSITORY"{argument})  # in evaluation mode
```
"""


def save_pretrained(model: nn.Module, folder: str | Path, **options: Any) -> None:
    """Save a network to a folder for `from_pretrained`: weights, `config.json`, and a model card if there is none.

    Args:
        model: any network, converted or not.
        folder: is created where it does not exist.
        **options: of `huggingface_hub.ModelHubMixin.save_pretrained`, such as `push_to_hub=True` and `repo_id`.

    Example:
        >>> save_pretrained(nn.Sequential(nn.BatchNorm2d(8)), "my-network")  # doctest: +SKIP
    """
    if options:
        _hub_class()(model).save_pretrained(folder, **options)
    else:  # the same files, without the library
        write_folder(model, Path(folder))


def push_to_hub(model: nn.Module, repo_id: str, **options: Any) -> str:
    """Upload a network to the Hugging Face Hub and return the address of the commit.

    Args:
        model: any network, converted or not.
        repo_id: `user/name`; created where it does not exist.
        **options: of `huggingface_hub.ModelHubMixin.push_to_hub`, such as `private`, `token` and `commit_message`.

    Example:
        >>> push_to_hub(nn.Sequential(nn.BatchNorm2d(8)), "me/my-network", private=True)  # doctest: +SKIP
    """
    return str(_hub_class()(model).push_to_hub(repo_id, **options))


def from_pretrained(where: str | Path, *, model: nn.Module | None = None, **options: Any) -> nn.Module:
    """Return a network, in evaluation mode, from a folder of `save_pretrained` or from the Hugging Face Hub.

    Args:
        where: a local folder, also one of `asrnorm export RUN --format hub`, or the `user/name` of a repository.
        model: a network of the saved architecture, if `asrnorm.create_model` did not build it; it is converted as the
            saved one was.
        **options: of `huggingface_hub.ModelHubMixin.from_pretrained`, such as `revision`, `token` and `cache_dir`.

    Raises:
        InputError: no such folder, or its weights are damaged or of another network.
        MissingDependencyError: not a local folder, and huggingface_hub is not installed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_pretrained(asrnorm.create_model("digits_convnet", norm="asr"), folder)
        ...     type(from_pretrained(folder)).__name__
        'DigitsConvNet'
    """
    if not Path(where).is_dir():
        if not _REPOSITORY.fullmatch(str(where)):
            raise InputError(f"{where}: no such folder; give one of save_pretrained, or a repository, as user/name")
        network: nn.Module = _hub_class().from_pretrained(str(where), model=model, **options).network
        return network
    if not (weights := Path(where, WEIGHTS)).is_file():
        raise InputError(f"{where}: has no {WEIGHTS}; give a folder of save_pretrained")
    return load(weights, model).eval()


def write_folder(model: nn.Module, folder: Path, facts: dict[str, Any] | None = None, card: str | None = None) -> None:
    """Write weights, `config.json` with additional facts, and a card; a given card replaces the one that is there."""
    save(model, folder / WEIGHTS)
    name, saved = type(model).__name__, json.loads(read_metadata(folder / WEIGHTS)["asrnorm"])
    description = {
        "asrnorm_version": asrnorm.__version__,
        "architecture": name,
        "model": saved["model"],  # the call of `create_model`
        "conversion": saved["conversion"],
        **(facts or {}),
    }
    write_whole(folder / CONFIG, json.dumps(description, indent=2) + "\n")
    if card is None and not (folder / CARD).exists():
        steps = [f"{len(step['layers'])} norm layers converted to `{step['norm']}`." for step in saved["conversion"]]
        argument = "" if saved["model"] else f", model={name}(...)"
        card = make_card(name, "\n".join(steps), argument=argument)
    if card is not None:
        write_whole(folder / CARD, card)


def make_card(title: str, *sections: str, argument: str = "", metadata: dict[str, Any] | None = None) -> str:
    """Return a model card: metadata, a title, the first section, how to load the network, the other sections."""
    import yaml

    tags = ["image-classification", "domain-generalization", "pytorch"]
    values = {"library_name": "asrnorm", "pipeline_tag": tags[0], "tags": tags, **(metadata or {})}
    head = f"---\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True)}---\n"
    return "\n".join([head, f"# {title}\n", f"{sections[0]}\n", _USE.format(argument=argument), *sections[1:]])


@cache
def _hub_class() -> Any:
    hub = import_extra("huggingface_hub", "the Hugging Face Hub", "huggingface_hub", "hub")

    class HubNetwork(hub.ModelHubMixin):  # type: ignore[name-defined]
        def __init__(self, network: nn.Module) -> None:
            self.network = network

        def _save_pretrained(self, save_directory: Path) -> None:
            write_folder(self.network, save_directory)

        @classmethod
        def _from_pretrained(cls, *, model_id: str, model: nn.Module | None = None, **options: Any) -> "HubNetwork":
            return cls(load(hub.hf_hub_download(model_id, WEIGHTS, **options), model).eval())

    return HubNetwork
