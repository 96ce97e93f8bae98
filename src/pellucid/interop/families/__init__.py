"""Hugging Face's families of checkpoints: `FAMILIES` has the record of each by its model_type.

A family is one file with a record, and its row here: its config.json to our settings, and our
tensors' names to theirs.
"""

from __future__ import annotations

from pellucid.interop.families.bart import BART
from pellucid.interop.families.bert import BERT
from pellucid.interop.families.family import Family, Foreign, Theirs
from pellucid.interop.families.gpt2 import GPT2
from pellucid.interop.families.llama import LLAMA
from pellucid.interop.families.t5 import T5

FAMILIES: dict[str, Family] = {**GPT2, **BERT, **LLAMA, **BART, **T5}

__all__ = ["FAMILIES", "Family", "Foreign", "Theirs"]
