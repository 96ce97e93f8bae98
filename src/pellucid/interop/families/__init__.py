"""Families of Hugging Face checkpoints: `FAMILIES` has each by its model_type.

A family is a file NAME.toml, which maps settings and tensor names to Pellucid's, and an entry here.
Whatever the file cannot express is in a subclass of `Family`.
"""

from pellucid.interop.families.bart import Bart
from pellucid.interop.families.bert import Bert, Electra, Roberta
from pellucid.interop.families.family import Family, Foreign, Theirs
from pellucid.interop.families.gpt2 import Gpt2
from pellucid.interop.families.llama import Gemma, Llama, Qwen
from pellucid.interop.families.t5 import T5

KINDS: dict[str, type[Family]] = {
    "gpt2": Gpt2, "bert": Bert, "roberta": Roberta, "distilbert": Bert, "electra": Electra,
    "llama": Llama, "mistral": Llama, "qwen2": Qwen, "qwen3": Qwen, "gemma": Gemma, "bart": Bart,
    "marian": Bart, "pegasus": Bart, "t5": T5,
}  # fmt: skip
FAMILIES = {name: kind(name) for name, kind in KINDS.items()}
CLASSIFIERS = {name: KINDS[name](f"{name}-labels") for name in ("bert", "roberta")}
"""Families of models with a layer of labels over the first row, `…ForSequenceClassification`."""

__all__ = ["CLASSIFIERS", "FAMILIES", "Family", "Foreign", "Theirs"]
