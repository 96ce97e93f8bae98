"""Make more training pairs out of those you have: data diversification (Nguyen et al. 2020).

Two models of the same pairs, one for each direction, write what is missing: of every pair (s, t)
come (s, forward(s)) and (backward(t), t). A model that learns from all of them is better than
either of the two (docs/quality.md). PAIRS is a corpus by name or a file of pairs:

    pellucid train multi30k-en-de --run runs/forward
    pellucid train multi30k-de-en --run runs/backward
    python examples/more_pairs.py multi30k-en-de runs/forward runs/backward > more.tsv
    pellucid train multi30k-en-de --data.more more.tsv --run runs/final
"""

import sys
from pathlib import Path

import pellucid
from pellucid.data.corpora import load_corpus
from pellucid.data.files import read_pairs

if __name__ == "__main__":
    named, forward, backward = sys.argv[1:]
    pairs = read_pairs(Path(named)) if Path(named).is_file() else load_corpus(named).train
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    written = set(zip(sources, targets, strict=True))
    made = [
        *zip(sources, pellucid.load(forward).best(sources), strict=True),
        *zip(pellucid.load(backward).best(targets), targets, strict=True),
    ]
    print("source", "target", sep="\t")
    for pair in dict.fromkeys(made):
        if pair not in written and all(pair):
            print(*pair, sep="\t")
