"""Compute BLEU as papers on Multi30k do, on lower-cased Moses tokens, next to sacreBLEU.

    python -m benchmarks.published_bleu MODEL CORPUS [--beam 5]

MODEL: a run or model folder; CORPUS: multi30k-en-de or multi30k-de-en, whose test set is answered.
Outputs and references are processed alike: Moses' punctuation normalisation, lower-casing, Moses'
tokenizer, then BLEU over these tokens (as Wu et al., ACL 2021, prepare their data). It needs
sacremoses: pip install sacremoses. The intervals are sacreBLEU's, 1,000 bootstrap samples.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from sacrebleu.metrics.bleu import BLEU
from sacremoses import MosesPunctNormalizer, MosesTokenizer

import pellucid
from pellucid.data.corpora import load_corpus


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("corpus", choices=["multi30k-en-de", "multi30k-de-en"])
    parser.add_argument("--beam", type=int, default=5)
    options = parser.parse_args()
    pairs = load_corpus(options.corpus, None).test
    trained = pellucid.load(options.model)
    trained = replace(trained, search=replace(trained.search, beam=options.beam))
    answers = [best[0].text for best in trained.generate_answers([pair.source for pair in pairs])]
    references = [pair.targets[0] for pair in pairs]
    language = options.corpus.rpartition("-")[2]
    normalise, tokenize = (
        MosesPunctNormalizer(language).normalize,
        MosesTokenizer(language).tokenize,
    )

    def moses(text: str) -> str:
        return str(tokenize(normalise(text).lower(), return_str=True, escape=False))

    tokens = BLEU(tokenize="none")
    ours = [moses(text) for text in answers]
    theirs = [moses(text) for text in references]
    print("lower-cased Moses tokens:", tokens.corpus_score(ours, [theirs], n_bootstrap=1000))
    detokenised = BLEU(lowercase=True)
    print("lower-cased 13a:", detokenised.corpus_score(answers, [references], n_bootstrap=1000))


if __name__ == "__main__":
    main()
