"""Pellucid: the Transformer built from nothing in Python, every derivative by hand."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from os import PathLike

    from pellucid import nn, ops
    from pellucid.core.checked import checked
    from pellucid.core.rng import Rng
    from pellucid.core.vjp import pair
    from pellucid.kernels import reference

__version__ = "0.1.0"
__all__ = ["Rng", "checked", "load", "nn", "ops", "pair", "reference"]

_HOME = {"Rng": "core.rng", "checked": "core.checked", "pair": "core.vjp", "reference": "kernels"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that one page alone loads little else."""
    if name in ("nn", "ops"):
        return import_module(f"pellucid.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'pellucid' has no attribute {name!r}")
    return getattr(import_module(f"pellucid.{_HOME[name]}"), name)


def load(path: str | PathLike[str], *, accept_changes: bool = False) -> Any:
    """Read a trained model, or weights.

    A folder gives a task, a model in eval mode with its tokenizers: a model folder or a run folder
    of Pellucid's, or one of Hugging Face's (config.json, model.safetensors, tokenizer.json), or the
    name of a model that comes with the package (`pellucid models`).
    `generate` takes texts and returns the list of their answers; a decoder alone continues them.
    `stream` yields one answer as it is generated. An encoder alone has `guesses` for the [MASK]s of
    a text, and `embeddings` of texts. `.model` is the model itself.

    A .safetensors file gives its arrays by name, for `load_state_dict`; torch's names for a module
    of `pellucid.nn` fit as they are.

    A model folder whose files were changed after it was saved is refused, unless `accept_changes`.
    Raises `UserError` naming the file that is missing, damaged or does not fit the others.

    >>> load("runs/g2p-demo").generate(["attention"])  # doctest: +SKIP
    ['ə t ˈɛ n ʃ ə n']
    >>> layer = nn.Linear(3, 2)
    >>> layer.load_state_dict(load("linear.safetensors"))  # doctest: +SKIP
    """
    from pathlib import Path

    if Path(path).suffix == ".safetensors":
        from pellucid.core.weights import read_weights

        return read_weights(Path(path))
    from pellucid.tasks.folder import load_model

    return load_model(Path(path), accept_changes)
