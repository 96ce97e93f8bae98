"""BERT, and encoders that differ from it in names, head or first position."""

from typing import Any

from pellucid.data.tokenizers import SPECIALS
from pellucid.interop.families.family import Family, Foreign, Settings, Table


class Bert(Family):
    """BERT, BERT classifiers and DistilBERT; the base class of RoBERTa and ELECTRA.

    In the TOML file `head` names an array that only models with a masked-LM head have; `labels`,
    in the files of classifiers, names the output layer.
    """

    def read(self, theirs: Foreign) -> Settings:
        """Return whether the weights have a head and a pooler; of a classifier, `label_vocab_size`.

        That counts the labels in config.json and the special tokens before them.
        """
        if "labels" in self.page:
            return {"label_vocab_size": theirs.label_tokenizer().vocab_size}
        head = self.page["head"] in theirs.arrays
        return {"head": head, "pooler": "pooler.dense.weight" in theirs.arrays}

    def renamed(self, config: Any, theirs: Foreign) -> Table:
        """Return the names of the layer of labels, or of the bias of an untied output layer.

        An untied output layer may have a bias of its own in the file; otherwise its bias is the
        one in the TOML file.
        """
        if labels := self.page.get("labels"):
            layer = {"of": f"{labels}.*", "more": len(SPECIALS)}
            return dict.fromkeys(("output.weight", "output.bias"), layer)
        own = self.page["names"]["output.weight"].replace("weight", "bias")
        apart = not config.tie_word_embeddings and own in theirs.arrays
        return {"output.bias": own} if apart else {}


class WithGelu(Bert):
    """A family whose head always has GELU.

    `title` in the TOML file is its name in errors.
    """

    def read(self, theirs: Foreign) -> Settings:
        """Return BERT's settings.

        Raises `UserError` if the weights have a head and the model's activation is not GELU.
        """
        found, given = super().read(theirs), theirs.activation("hidden_act", "gelu")
        if found.get("head") and given != "gelu":
            raise theirs.fault(
                f"hidden_act = {theirs.values['hidden_act']!r}: {self.page['title']}'s head has "
                "'gelu' in every file, and a model here has one activation; remove the arrays of "
                f"{self.page['head'].partition('.')[0]} to read the model without its head"
            )
        return found


class Roberta(WithGelu):
    """RoBERTa, whose first position is the padding token's id + 1."""

    def read(self, theirs: Foreign) -> Settings:
        """Return its settings; positions that are never used are not counted."""
        positions = theirs.whole("max_position_embeddings", 512) - self._first(theirs)
        return super().read(theirs) | {"max_position_embeddings": positions}

    def renamed(self, config: Any, theirs: Foreign) -> Table:
        """Return BERT's names, and the position table without the rows that are never used."""
        name, first = self.page["names"]["embed.positions.weight"], self._first(theirs)
        skipped: Table = {"embed.positions.weight": {"of": name, "skip": first}}
        return {**skipped, **super().renamed(config, theirs)}

    def _first(self, theirs: Foreign) -> int:
        """Return the index of the first position."""
        return theirs.whole("pad_token_id", 1) + 1


class Electra(WithGelu):
    """ELECTRA: a BERT whose embedding size may differ, which is not supported."""

    def given(self, theirs: Foreign) -> Settings:
        """Raise `UserError` if embedding_size differs from hidden_size."""
        theirs.only("embedding_size", theirs.whole("hidden_size"))
        return {}
