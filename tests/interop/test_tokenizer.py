"""Tokenizers of other programs: what an encoder-decoder's two sides read."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tests.training.test_start import write_tokenizer
from tokenizers import decoders, models, pre_tokenizers
from tokenizers.trainers import BpeTrainer

import pellucid
from pellucid import reference
from pellucid.apps import view
from pellucid.core.batch import Packed
from pellucid.core.errors import UsageError, UserError
from pellucid.data.pairs import TextPair
from pellucid.generation import Constraints, SearchConfig, search
from pellucid.interop.huggingface import read_search, write_pretrained
from pellucid.interop.tokenizer import ForeignTokenizer, SentencePieceTokenizer
from pellucid.tasks import CausalLMTask, Seq2SeqTask

FIXTURES = Path(__file__).parents[1] / "fixtures" / "huggingface"
TEXTS = ["the cat sat on the mat", "a dog ran to the cat", "오늘은 날씨가 좋다"] * 4


@pytest.fixture
def marian(tmp_path: Path) -> Path:
    import sentencepiece as library

    folder = tmp_path / "marian"
    shutil.copytree(FIXTURES / "marian", folder)
    (tmp_path / "texts").write_text("\n".join(TEXTS), encoding="utf-8")
    library.SentencePieceTrainer.train(
        input=str(tmp_path / "texts"), model_prefix=str(tmp_path / "spm"), vocab_size=27,
        bos_id=-1, pad_id=-1, eos_id=0, unk_id=1, minloglevel=2,
    )  # fmt: skip
    for side in ("source", "target"):
        shutil.copy(tmp_path / "spm.model", folder / f"{side}.spm")
    core = library.SentencePieceProcessor(model_file=str(tmp_path / "spm.model"))
    pieces = [core.id_to_piece(i) for i in range(core.get_piece_size())]
    order = ["<unk>", "<pad>", "</s>", *(p for p in pieces if p not in ("<unk>", "</s>"))]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(order)}))
    return folder


@pytest.mark.oracle("sentencepiece")
def test_marians_source_ends_and_its_target_does_not(marian: Path) -> None:
    translator = pellucid.load(marian)
    assert isinstance(translator, Seq2SeqTask)
    for text in TEXTS[:3]:
        source, target = translator.source.encode(text), translator.target.encode(text)
        assert source == [*target, translator.model.config.eos_token_id]
        assert translator.target.decode(target) == text
        assert translator.source.decode(source) == text
    assert translator.source.unknown(["cat?", "cat"]) == {"?": 1}
    assert len(translator.generate_answers(TEXTS[:2])) == 2


def test_what_a_tokenizer_without_bytes_cannot_write_is_named() -> None:
    pieces = {piece: i for i, piece in enumerate(["[UNK]", "the", "cat", "##s", "!"])}
    core = tokenizers.Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found = ForeignTokenizer(core)
    assert found.unknown(["the жук!", "the cats", "жук"]) == {"жук": 2}
    assert [found.knows(text) for text in ("the cats жук", "the жук", "!", "", "??")] == [
        True, False, True, True, False
    ]  # fmt: skip
    core = tokenizers.Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -2.0)], 0))
    assert ForeignTokenizer(core).unknown(["abж"]) == {"ж": 1}
    core = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    assert ForeignTokenizer(core).unknown(["abж"]) == {}


@pytest.mark.filterwarnings("ignore:Recommended")
@pytest.mark.oracle("sentencepiece", "transformers")
def test_marians_ids_are_those_of_transformers(marian: Path) -> None:
    import transformers

    theirs = transformers.MarianTokenizer.from_pretrained(marian)
    ours = pellucid.load(marian)
    assert isinstance(ours, Seq2SeqTask)
    for text in TEXTS[:3]:
        assert ours.source.encode(text) == theirs(text)["input_ids"]


@pytest.mark.oracle("sentencepiece")
def test_marians_sides_may_have_a_vocabulary_each(marian: Path, tmp_path: Path) -> None:
    vocabulary = json.loads((marian / "vocab.json").read_text())
    after = {i: piece for piece, i in vocabulary.items()}
    turned = {piece: i if i < 3 else len(after) + 2 - i for piece, i in vocabulary.items()}
    (marian / "target_vocab.json").write_text(json.dumps(turned))
    translator: Any = pellucid.load(marian)
    write_pretrained(translator.model, marian, tmp_path / "written")
    for loaded in (translator, pellucid.load(tmp_path / "written")):
        source, target = loaded.source.encode(TEXTS[0])[:-1], loaded.target.encode(TEXTS[0])
        assert target == [turned[after[i]] for i in source] != source


@pytest.mark.oracle("sentencepiece")
@pytest.mark.parametrize("name", ["vocab.json", "target_vocab.json"])
def test_a_vocabulary_with_ids_beyond_the_table_is_refused(marian: Path, name: str) -> None:
    vocabulary = json.loads((marian / "vocab.json").read_text())
    (marian / name).write_text(json.dumps({**vocabulary, "▁the": 97}))
    with pytest.raises(UserError, match=rf"/{name}: has ids up to 97, the model 97 tokens"):
        pellucid.load(marian)


@pytest.mark.parametrize(
    ("family", "name"),
    [("gpt2", "tokenizer.json"), ("bart", "tokenizer.json"), ("bart", "target_tokenizer.json")],
)
def test_a_tokenizer_with_few_tokens_and_an_id_beyond_the_table_is_refused(
    family: str, name: str, tmp_path: Path
) -> None:
    folder = tmp_path / family
    shutil.copytree(FIXTURES / family, folder)
    for file, id_ in (("tokenizer.json", 2), (name, 120)):
        model = tokenizers.models.WordLevel({"<unk>": 0, "a": 1, "b": id_}, "<unk>")
        tokenizers.Tokenizer(model).save(str(folder / file))
    with pytest.raises(UserError, match=rf"/{name}: has ids up to 120, the model 97 tokens"):
        pellucid.load(folder)


@pytest.fixture
def bart(tmp_path: Path) -> Seq2SeqTask:
    folder = tmp_path / "bart"
    shutil.copytree(FIXTURES / "bart", folder)
    words = ["<s>", "<pad>", "</s>", "<unk>", "the", "cat", "sat"]
    core = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>")
    )
    core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    core.save(str(folder / "tokenizer.json"))
    loaded = pellucid.load(folder)
    assert isinstance(loaded, Seq2SeqTask)
    return loaded


def test_a_tokenizer_json_frames_the_source_only(bart: Seq2SeqTask) -> None:
    assert bart.source.encode("the cat") == [0, 4, 5, 2]
    assert bart.target.encode("the cat") == [4, 5]
    assert bart.search.beam == 1


def test_log_p_counts_a_forced_first_token_whatever_else_is_set(bart: Seq2SeqTask) -> None:
    forced = replace(bart.search, max_length=5, constraints=Constraints(forced_bos_token_id=0))
    task = replace(bart, search=forced)
    answer, other = (
        task.generate_answers(["the cat"], repetition_penalty=penalty)[0][0]
        for penalty in (1.0, 1.0000001)
    )
    own = task.token_scores([(task.source.encode("the cat"), answer.tokens)])[0].log_p
    assert answer.log_p == pytest.approx(own[: 5 + answer.finished].sum(), rel=1e-5)
    assert answer.log_p == pytest.approx(other.log_p, rel=1e-5)


def test_generation_settings_are_read_and_checked(tmp_path: Path) -> None:
    folder = tmp_path / "bart"
    shutil.copytree(FIXTURES / "bart", folder)
    settings = {
        "num_beams": 4, "max_length": 20, "length_penalty": 0.5, "forced_bos_token_id": 6
    }  # fmt: skip
    (folder / "generation_config.json").write_text(json.dumps(settings))
    pipeline = pellucid.load(folder)
    assert isinstance(pipeline, Seq2SeqTask)
    found = pipeline.search
    assert (found.beam, found.max_length, found.length_penalty) == (4, 20, 0.5)
    with reference():
        for answers in search(pipeline.model, Packed.of([[5, 9], [7]]), found):
            assert answers[0].tokens[0] == 6
    (folder / "generation_config.json").write_text(json.dumps({"num_beams": 0}))
    with pytest.raises(UserError, match=r"generation_config\.json: beam must be at least 1 and"):
        pellucid.load(folder)


@pytest.mark.parametrize(
    ("settings", "found", "warning"),
    [
        ({"max_length": 20, "max_new_tokens": 9}, SearchConfig(max_length=9), None),
        (
            {"no_repeat_ngram_size": 3},
            SearchConfig(constraints=Constraints(no_repeat_ngram=3)),
            None,
        ),
        ({"length_penalty": 100}, SearchConfig(length_penalty=10), "length_penalty = 100.0 is tak"),
        ({"length_penalty": -11.0}, SearchConfig(length_penalty=-10), "-11.0 is taken as -10"),
        (
            {"min_length": 5, "do_sample": True, "repetition_penalty": 1.3},
            SearchConfig(constraints=Constraints(min_length=4)),  # there the begin token counts
            "not followed here: do_sample, repetition_penalty",
        ),
        (
            {"min_length": 5, "min_new_tokens": 7},
            SearchConfig(constraints=Constraints(min_length=7)),
            None,
        ),
        (
            {"stop_strings": ["###"], "renormalize_logits": True},  # Marian's files have it
            SearchConfig(),
            "not followed here: stop_strings, renormalize_logits",
        ),
        ({"bad_words_ids": [[3, 4]]}, SearchConfig(), "not followed here: bad_words_ids"),
        (
            {"min_length": 0, "do_sample": False, "repetition_penalty": 1, "bad_words_ids": [[4]]},
            SearchConfig(),
            None,
        ),
    ],
)
def test_settings_of_generation_are_followed_or_named(
    settings: dict[str, Any],
    found: SearchConfig,
    warning: str | None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    assert read_search(tmp_path) == found
    assert len(caplog.messages) == (warning is not None)
    assert (warning or "") in caplog.text


def test_a_shortest_length_that_counts_the_prompt_too_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for settings, least in (({"min_length": 5}, 0), ({"min_new_tokens": 5}, 5)):
        (tmp_path / "generation_config.json").write_text(json.dumps(settings))
        assert read_search(tmp_path, alone=True).constraints.min_length == least
    assert caplog.text.count("not followed here: min_length") == len(caplog.messages) == 1


@pytest.mark.parametrize("family", ["llama", "bart"])
def test_a_decoder_alone_warns_that_its_prompt_s_n_grams_do_not_count(
    family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / family
    shutil.copytree(FIXTURES / family, folder)
    for size in (2, 0):
        (folder / "generation_config.json").write_text(json.dumps({"no_repeat_ngram_size": size}))
        caplog.clear()
        assert pellucid.load(folder).search.constraints.no_repeat_ngram == size  # type: ignore[attr-defined]
        warned = "no_repeat_ngram_size counts the answer here" in caplog.text
        assert warned == (family == "llama" and size > 0)


@pytest.mark.parametrize(
    ("frame", "settings", "begins"),
    [
        ("<s> $A", {}, True),
        ("$A", {}, False),
        ("<s> $A", {"add_bos_token": False}, False),
        ("$A </s>", {"add_bos_token": True}, True),
    ],
)
def test_a_decoder_reads_and_learns_texts_as_its_tokenizer_frames_them(
    frame: str, settings: dict[str, bool], begins: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "llama"
    shutil.copytree(FIXTURES / "llama", folder)
    write_tokenizer(folder, ["<unk>", "<s>", "</s>"], frame)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    pipeline = pellucid.load(folder)
    assert isinstance(pipeline, CausalLMTask)
    ids = pipeline.source.encode("ab")
    assert pipeline.prompt_ids(ids) == [1] * begins + ids
    learned = pipeline.encode([TextPair("", ("ab",))], max_tokens=9, first_target_only=True)
    assert learned.target.tokens.tolist() == [1] * begins + ids + [2]


@pytest.mark.parametrize(
    ("frame", "settings"),
    [
        ("<s> $A", {}),
        ("$A", {"add_bos_token": True, "bos_token": "<s>"}),
        ("$A", {"add_bos_token": True, "bos_token": {"content": "<s>"}}),
    ],
)
def test_a_text_begins_with_the_token_of_the_tokenizer(
    frame: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """DeepSeek's distilled Qwen has another in config.json."""
    folder = tmp_path / "llama"
    shutil.copytree(FIXTURES / "llama", folder)
    config = json.loads((folder / "config.json").read_text())
    for given in (2, None):
        (folder / "config.json").write_text(json.dumps({**config, "bos_token_id": given}))
        write_tokenizer(folder, ["<unk>", "</s>", "-", "<s>"], frame)
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        pipeline: Any = pellucid.load(folder)
        ids = pipeline.source.encode("ab")
        assert pipeline.prompt_ids(ids) == [3, *ids]
        learned = pipeline.encode([TextPair("", ("ab",))], max_tokens=9, first_target_only=True)
        assert learned.target.tokens[0] == 3


def test_without_tokenizers_texts_are_refused(tmp_path: Path) -> None:
    pipeline = pellucid.load(FIXTURES / "bart")
    assert isinstance(pipeline, Seq2SeqTask)
    with pytest.raises(UserError, match=r"has no tokenizer\.json"):
        pipeline.generate_answers(["a text"])


def test_an_answer_is_scored_with_the_begin_that_it_is_trained_with(bart: Seq2SeqTask) -> None:
    assert bart.answer_ids("the cat") == [0, 4, 5]
    loss = bart.evaluate([TextPair("sat", ("the cat",))], max_tokens=9, batch_tokens=64).loss
    assert bart.score([("sat", "the cat")])[0] == pytest.approx(-4 * loss, rel=1e-5)
    with pytest.raises(UsageError, match="another program's cannot be compared"):
        bart.ensemble(bart)


def test_a_mask_written_as_robertas_is_filled_where_it_stands(tmp_path: Path) -> None:
    folder = tmp_path / "roberta"
    shutil.copytree(FIXTURES / "roberta", folder)
    config = json.loads((folder / "config.json").read_text())
    words = ["<s>", "<pad>", "</s>", "<unk>", "paris", "is", "big", "<mask>"]
    core = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>")
    )
    core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    core.add_special_tokens(["<mask>"])
    core.save(str(folder / "tokenizer.json"))
    assert config["vocab_size"] >= len(words)
    roberta: Any = pellucid.load(folder)
    theirs, ours = (roberta.guesses(text, 1) for text in ("paris <mask> big", "paris [MASK] big"))
    assert theirs == ours
    assert theirs[0][0].text.startswith("paris")
    assert theirs[0][0].text.endswith("big")


@pytest.mark.parametrize("mask", ["[MASK]", "<mask>"])
def test_a_roberta_may_have_berts_tokens(mask: str, tmp_path: Path) -> None:
    """KLUE's Korean ones do; a tokenizer with neither is named."""
    folder = tmp_path / "roberta"
    shutil.copytree(FIXTURES / "roberta", folder)
    words = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", mask, "paris", "is", "big"]
    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, "[UNK]")
    core = tokenizers.Tokenizer(model)
    core.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    core.add_special_tokens([mask])
    core.save(str(folder / "tokenizer.json"))
    if mask == "<mask>":
        message = r"/tokenizer\.json: has no tokens <s> </s> <mask> or \[CLS\] \[SEP\] \[MASK\]"
        with pytest.raises(UserError, match=message):
            pellucid.load(folder)
        return
    roberta: Any = pellucid.load(folder)
    config = roberta.model.config
    assert (config.bos_token_id, config.eos_token_id, config.mask_token_id) == (0, 2, 4)
    assert len(roberta.guesses("paris [MASK] big", 1)) == 1


class Pieces:
    """In place of a SentencePiece model: a piece is a word."""

    def encode(self, text: str, out_type: type) -> list[str]:
        return ["▁" + word for word in text.split()]


def test_marian_reads_the_language_of_the_answer_whole() -> None:
    tokenizer = SentencePieceTokenizer.__new__(SentencePieceTokenizer)
    vocabulary = {"<unk>": 1, "</s>": 0, ">>fr<<": 2, "▁hello": 3}
    tokenizer._core, tokenizer._ids = Pieces(), vocabulary
    tokenizer._end, tokenizer._unknown = 0, 1
    assert tokenizer.encode(">>fr<< hello") == [2, 3, 0]
    assert tokenizer.encode(">>xx<< hello") == [1, 3, 0]  # a language that it has not
    assert tokenizer.encode("hello >>fr<<") == [3, 1, 0]
    assert tokenizer.unknown([">>fr<< hello"]) == {}


def test_a_given_answer_is_drawn_with_the_begin_that_it_is_trained_with(bart: Seq2SeqTask) -> None:
    record = view.attention(bart, "sat", "the cat").record
    assert record.loss == pytest.approx(-bart.score([("sat", "the cat")])[0], rel=1e-5)
    assert [label.text for label in record.target][-2:] == ["the", "cat"]
    assert len(record.target) == 4


def test_a_byte_level_token_of_another_program_writes_its_bytes(tmp_path: Path) -> None:
    core = tokenizers.Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        ["the cat 안녕"], BpeTrainer(vocab_size=270, initial_alphabet=alphabet)
    )
    tokenizer = ForeignTokenizer(core)
    for text in ("the cat", "\xad\x00 \x7f 🙂 안녕 é", "\ufffd"):
        for spelled in tokenizer.spelled:
            assert b"".join(spelled[i] for i in tokenizer.encode(text)) == text.encode()


def test_an_answer_framed_by_a_forced_token_begins_with_its_prefix(bart: Seq2SeqTask) -> None:
    for prefix in ("the", "t", "the c"):
        answer = bart.generate(["the cat"], prefix=prefix, max_length=7)[0]
        assert answer.removeprefix("<s> ").startswith(prefix)


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.Metaspace(),
        decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                           decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
    ],
)  # fmt: skip
def test_a_space_before_a_word_is_left_out_at_the_beginning_of_a_text(decoder: Any) -> None:
    names = ["<pad>", "\u2581the", "\u2581cat", "s", "<0xEA>"]
    core = tokenizers.Tokenizer(models.WordLevel({n: i for i, n in enumerate(names)}, "<pad>"))
    core.decoder = decoder
    begins, behind = ForeignTokenizer(core).spelled
    assert (begins[1:4], behind[1:4]) == ([b"the", b"cat", b"s"], [b" the", b" cat", b"s"])
    if isinstance(decoder, decoders.Sequence):
        assert begins[4] == behind[4] == b"\xea"


WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "cat",
    "sat",
    "##s",
    ",",
    "날",
    "##씨",
]
OLD = ["The cats, the CÀT", "cat[MASK] dog", "날씨", "一cat"]


def write_words(folder: Path, **settings: Any) -> Path:
    folder.mkdir()
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def write_bytes(folder: Path, specials: list[str]) -> Path:
    folder.mkdir()
    core = tokenizers.Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        TEXTS, BpeTrainer(special_tokens=specials, initial_alphabet=alphabet, show_progress=False)
    )
    core.model.save(str(folder))
    return folder


def test_a_vocabulary_of_words_is_berts(tmp_path: Path) -> None:
    """Older than tokenizer.json; case is folded unless tokenizer_config.json says otherwise."""
    made = ForeignTokenizer.of_vocabulary(write_words(tmp_path / "a"), {})
    assert made is not None
    assert made.encode("The cats, the CÀT") == [5, 6, 8, 9, 5, 6]
    assert made.framed().encode("the sat[MASK]") == [2, 5, 7, 4, 3]
    assert made.decode([2, 5, 6, 8, 3]) == "the cats"
    cased = ForeignTokenizer.of_vocabulary(tmp_path / "a", {"do_lower_case": False})
    assert cased is not None
    assert cased.encode("The cat 날씨") == [1, 6, 10, 11]
    assert ForeignTokenizer.of_vocabulary(tmp_path, {}) is None
    (tmp_path / "a" / "vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="the vocabulary is damaged"):
        ForeignTokenizer.of_vocabulary(tmp_path / "a", {})


def test_a_vocabulary_of_bytes_is_gpt2s_or_robertas(tmp_path: Path) -> None:
    gpt = ForeignTokenizer.of_vocabulary(write_bytes(tmp_path / "a", ["<|endoftext|>"]), {})
    roberta = ForeignTokenizer.of_vocabulary(write_bytes(tmp_path / "b", ["<s>", "</s>"]), {})
    assert gpt is not None
    assert roberta is not None
    for text in (*TEXTS, " A cat\n오늘"):
        for made in (gpt, roberta):
            assert made.decode(made.encode(text)) == text
        assert gpt.framed().encode(text) == gpt.encode(text)
        assert roberta.framed().encode(text) == [0, *roberta.encode(text), 1]
    assert gpt.encode("cat<|endoftext|>")[-1] == 0


@pytest.mark.oracle("torch", "transformers")
def test_transformers_reads_old_vocabularies_so(tmp_path: Path) -> None:
    import transformers

    write_words(tmp_path / "a")
    write_bytes(tmp_path / "b", ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    write_bytes(tmp_path / "c", ["<|endoftext|>"])
    for folder, kind in (("a", "Bert"), ("b", "Roberta"), ("c", "GPT2")):
        theirs = getattr(transformers, f"{kind}Tokenizer").from_pretrained(tmp_path / folder)
        ours = ForeignTokenizer.of_vocabulary(tmp_path / folder, {})
        assert ours is not None
        for text in (*OLD, *TEXTS):
            if kind == "Bert" or "[MASK]" not in text:
                assert ours.framed().encode(text) == theirs(text)["input_ids"]


def test_a_folder_with_an_old_vocabulary_answers_and_is_copied_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "gpt2"
    shutil.copytree(FIXTURES / "gpt2", folder)
    entries = json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    letters = list(dict.fromkeys("".join(map(str, range(10))) + "abcdefgh"))[: entries - 1]
    pieces = {piece: i for i, piece in enumerate(["<|endoftext|>", *letters])}
    (folder / "vocab.json").write_text(json.dumps(pieces), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    task = pellucid.load(folder)
    assert task.source.encode("abc") == [pieces[x] for x in "abc"]
    assert set(task.generate(["abc"])[0]) <= {*letters}
    write_pretrained(task.model, folder, tmp_path / "written")
    assert pellucid.load(tmp_path / "written").source.encode("abc") == task.source.encode("abc")
