"""BERT, and encoders that differ from it in names, head or first position."""

from typing import Any

from pellucid.data.tokenizers import SPECIALS
from pellucid.interop.families.family import Family, Foreign, Settings, Table


class Bert(Family):
    """BERT and DistilBERT; `head` of a page is an array that only models with a head have.

    A page with `labels`, the layer that makes them, is of classifiers.
    """

    def read(self, theirs: Foreign) -> Settings:
        """Return whether the file has a masked-LM head and a pooler, or how many labels."""
        if "labels" in self.page:
            return {"label_vocab_size": theirs.label_tokenizer().vocab_size}
        head = self.page["head"] in theirs.arrays
        return {"head": head, "pooler": "pooler.dense.weight" in theirs.arrays}

    def renamed(self, config: Any, theirs: Foreign) -> Table:
        """Return the layer of labels, or the output's bias, which newer files name separately."""
        if labels := self.page.get("labels"):
            layer = {"of": f"{labels}.*", "more": len(SPECIALS)}
            return dict.fromkeys(("output.weight", "output.bias"), layer)
        own = self.page["names"]["output.weight"].replace("weight", "bias")
        apart = not config.tie_word_embeddings and own in theirs.arrays
        return {"output.bias": own} if apart else {}


class WithGelu(Bert):
    """A family whose head has GELU, whatever the model's activation; `title` is its name."""

    def read(self, theirs: Foreign) -> Settings:
        """Refuse a head whose activation is not the model's."""
        found, given = super().read(theirs), theirs.activation("hidden_act", "gelu")
        if found.get("head") and given != "gelu":
            raise theirs.fault(
                f"hidden_act = {theirs.values['hidden_act']!r}: {self.page['title']}'s head has "
                "'gelu' in every file, and a model here has one activation; remove the arrays of "
                f"{self.page['head'].partition('.')[0]} to read the model without its head"
            )
        return found


class Roberta(WithGelu):
    """RoBERTa, which counts positions from after the padding token's id."""

    def read(self, theirs: Foreign) -> Settings:
        """Return its settings, without the positions that it skips."""
        positions = theirs.whole("max_position_embeddings", 512) - self._first(theirs)
        return super().read(theirs) | {"max_position_embeddings": positions}

    def renamed(self, config: Any, theirs: Foreign) -> Table:
        """Return the positions that count, next to BERT's rows."""
        name, first = self.page["names"]["embed.positions.weight"], self._first(theirs)
        skipped: Table = {"embed.positions.weight": {"of": name, "skip": first}}
        return {**skipped, **super().renamed(config, theirs)}

    def _first(self, theirs: Foreign) -> int:
        return theirs.whole("pad_token_id", 1) + 1


class Electra(WithGelu):
    """ELECTRA."""

    def given(self, theirs: Foreign) -> Settings:
        """Refuse a model whose embedding_size is not its hidden_size."""
        theirs.only("embedding_size", theirs.whole("hidden_size"))
        return {}
