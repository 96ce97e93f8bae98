"""Make more training pairs out of those you have: data diversification (Nguyen et al. 2020).

Two models of the same pairs, one for each direction, write what is missing: of every pair (s, t)
come (s, forward(s)) and (backward(t), t). A model that learns from the pairs and from these is
better than either. To use it:

    pellucid train multi30k-en-de --run runs/forward
    pellucid train multi30k-de-en --run runs/backward
    python examples/more_pairs.py multi30k-en-de runs/forward runs/backward > more.tsv
    pellucid train multi30k-en-de --data.more more.tsv --run runs/final
"""

import sys

import pellucid
from pellucid.data.corpora import load_corpus

if __name__ == "__main__":
    corpus, forward, backward = sys.argv[1:]
    pairs = load_corpus(corpus).train
    written = {(pair.source, pair.target) for pair in pairs}
    print("source", "target", sep="\t")
    for model, texts, turned in (
        (forward, [pair.source for pair in pairs], False),
        (backward, [pair.target for pair in pairs], True),
    ):
        translations = pellucid.load(model).best(texts)
        for pair in zip(texts, translations, strict=True):
            new = pair[::-1] if turned else pair
            if new not in written and all(new):
                written.add(new)
                print(*new, sep="\t")
