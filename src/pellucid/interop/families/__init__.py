"""Hugging Face's families of checkpoints: `FAMILIES` has each by its model_type.

A family is a page, its settings and its tensors' names in ours, and its row here. What a page
cannot say is in a class of its own.
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
"""Those with a layer of labels over the first row, `…ForSequenceClassification`."""

__all__ = ["CLASSIFIERS", "FAMILIES", "Family", "Foreign", "Theirs"]
