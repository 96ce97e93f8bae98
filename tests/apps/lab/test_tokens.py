"""The vocabulary of article 003, kept next to its study."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.data.corpora.test_corpora import needs_data

from pellucid.apps.lab.study_file import load_study
from pellucid.apps.lab.trial import file_tokenizers
from pellucid.core.errors import UserError
from pellucid.data.corpora import load_corpus
from pellucid.data.pairs import TextPair
from pellucid.data.tokenizers import BOS, EOS, UNK
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.models.decoding import SearchConfig
from pellucid.tasks.seq2seq import Seq2SeqTask


def test_sources_are_framed_and_targets_are_not() -> None:
    source, target = file_tokenizers(load_study("article-003").tokenizer, frame_source=True)
    ids = target.encode("그게 뭐야?")
    assert source.encode("그게 뭐야?") == [BOS, *ids, EOS]
    assert UNK not in ids
    assert target.decode(ids).replace(" ", "") == "그게뭐야?"
    assert source.decode([BOS, *ids, EOS]) == target.decode(ids)
    same = file_tokenizers(load_study("article-003").tokenizer, frame_source=False)
    assert same[0] is same[1]


def test_what_a_model_learns_from_has_one_frame_around_a_target() -> None:
    both = file_tokenizers(load_study("article-003").tokenizer, frame_source=True)
    config = Seq2SeqConfig(10_194, 10_194, d_model=8, num_attention_heads=2)
    task = Seq2SeqTask.build(config, both, SearchConfig(), 0)
    examples = task.encode([TextPair("그게 뭐야?", ("그게 뭐야?",))], max_tokens=48)
    framed = both[0].encode("그게 뭐야?")
    assert examples.source.tokens.tolist() == examples.target.tokens.tolist() == framed


def test_the_model_has_the_number_of_parameters_of_the_article() -> None:
    study = load_study("article-003")
    source, target = file_tokenizers(study.tokenizer, frame_source=True)
    assert source.vocab_size == target.vocab_size == 10_194
    config = study.variants["sqrt_d_k"].model
    assert isinstance(config, Seq2SeqConfig)
    model = Seq2Seq(replace(config, source_vocab_size=10_194, target_vocab_size=10_194))
    assert sum(p.data.size for p in model.parameters()) == 11_818_450


@needs_data("chatbot_ko/ChatbotData.csv")
def test_answers_have_the_length_of_the_article_and_no_unknown_piece() -> None:
    _, target = file_tokenizers(load_study("article-003").tokenizer, frame_source=True)
    rows = target.encode_all([pair.target for pair in load_corpus("chatbot-ko", "all").train])
    assert sum(len(row) + 1 for row in rows) / len(rows) == pytest.approx(6.5406, abs=1e-4)
    assert not any(UNK in row for row in rows)


def test_a_damaged_file_and_one_of_other_ids_are_refused() -> None:
    text = load_study("article-003").tokenizer
    with pytest.raises(UserError, match="tokenizer is damaged"):
        file_tokenizers(text[:100], True)
    core = json.loads(text)
    vocab = core["model"]["vocab"]
    vocab["<pad>"], vocab["<s>"] = vocab["<s>"], vocab["<pad>"]
    for token in core["added_tokens"]:
        token["id"] = vocab[token["content"]]
    with pytest.raises(UserError, match=r"expected <pad>, <s>, </s>, <unk> as ids 0 to 3, got"):
        file_tokenizers(json.dumps(core), True)
