"""The page's own forward pass equals the library's, and with any part off the library's without it.

The library runs in float64 on the numbers that the page's int8 weights stand for.
"""

from __future__ import annotations

import json
import random
import subprocess
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tests.models.whole_model import shake

import pellucid
from pellucid import ops
from pellucid.apps.view.runnable import LARGEST, _tokenizer, runnable
from pellucid.core import dispatch
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UserError
from pellucid.data.appearance import reading_of
from pellucid.data.tokenizers import Tokenizer, train_tokenizer
from pellucid.generation import SearchConfig
from pellucid.interop.tokenizer import ForeignTokenizer
from pellucid.models import (
    CausalLM,
    CausalLMConfig,
    MaskedLM,
    MaskedLMConfig,
    Seq2Seq,
    Seq2SeqConfig,
)
from pellucid.models.classifier import Classifier
from pellucid.models.config import ClassifierConfig
from pellucid.models.quantize import dequantize, quantize
from pellucid.models.walk import UnsupportedError
from pellucid.nn import Recorder
from pellucid.ops import rules
from pellucid.tasks import CausalLMTask, ClassifierTask, MaskedLMTask, Seq2SeqTask

VIEWER = Path(__file__).parents[3] / "viewer"
TEXTS = ["banana split", "cab A.B"]
CONFIG = Seq2SeqConfig(
    d_model=12,
    num_attention_heads=3,
    ffn_dim=7,
    encoder_layers=2,
    decoder_layers=2,
    max_position_embeddings=17,
)
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"norm": "pre", "activation_function": "gelu", "positions": "learned"},
    {
        "norm": "pre",
        "norm_type": "rms_norm",
        "activation_function": "swiglu",
        "positions": "rotary",
        "rope_theta": 30.0,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "qk_norm": True,
        "attention_softcap": 0.7,
        "sliding_window": 3,
        "embedding_norm": True,
        "linear_bias": False,
        "output_bias": False,
    },
    {"positions": "alibi", "sliding_window": 4, "activation_function": "gelu_tanh"},
    {
        "positions": "relative",
        "relative_attention_num_buckets": 6,
        "relative_attention_max_distance": 5,
        "attention_scale": "learned",
        "activation_function": "geglu",
        "tie_embeddings": "all",
    },
    {"positions": "sinusoidal_halves", "position_scale": 0.3, "head_dim": 6, "final_norm": False},
    {"ffn_before": 1, "ffn_after": 2, "activation_function": "silu", "norm": "pre"},
    {"activation_function": "leaky_relu", "tie_embeddings": "output", "embedding_scale": 2.0},
    {"activation_function": "geglu_tanh", "attention_scale": "d_k"},
    {
        "positions": "rotary_cross",
        "qk_norm": True,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
    },
    # Wide enough for the compiled product.
    {"d_model": 40, "num_attention_heads": 5, "ffn_dim": 56, "norm": "pre"},
)
ALONE: dict[str, Any] = {
    "d_model": 12,
    "num_attention_heads": 3,
    "ffn_dim": 7,
    "num_hidden_layers": 2,
    "max_position_embeddings": 17,
}
ENCODERS: tuple[dict[str, Any], ...] = (
    {},
    {"norm": "pre", "positions": "sinusoidal", "activation_function": "relu"},
    {
        "norm": "pre",
        "norm_type": "rms_norm",
        "activation_function": "swiglu",
        "positions": "rotary",
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "qk_norm": True,
        "attention_softcap": 0.7,
        "linear_bias": False,
        "output_bias": False,
    },
    {"norm": "post", "positions": "alibi", "sliding_window": 4, "activation_function": "gelu_tanh"},
    {
        "positions": "relative",
        "relative_attention_num_buckets": 6,
        "relative_attention_max_distance": 5,
        "attention_scale": "learned",
        "activation_function": "geglu",
    },
    {"positions": "sinusoidal_halves", "position_scale": 0.3, "head_dim": 6, "final_norm": False},
    {"ffn_before": 1, "ffn_after": 2, "activation_function": "silu", "norm": "pre"},
    {"activation_function": "leaky_relu", "embedding_scale": 2.0, "embedding_norm": True},
    {"activation_function": "geglu_tanh", "attention_scale": "d_k", "norm": "post"},
    # Wide enough for the compiled product.
    {"d_model": 40, "num_attention_heads": 5, "ffn_dim": 56, "norm": "pre", "final_norm": True},
)
OFF_ALONE = [
    ["encoder.0.1"], ["encoder.3"], ["encoder.2"], ["encoder.0.0.2.1"], ["source.1"],
    ["source.4", "encoder.2.2", "encoder.1"],
]  # fmt: skip
MASKING = (
    *ENCODERS,
    {"tie_word_embeddings": False},
    {"type_vocab_size": 2, "norm_type": "rms_norm"},
)
LABELLING = (
    *ENCODERS,
    {"labels": "token"},
    {"labels": "token", "norm": "post"},
    {"pooling": "pooler", "type_vocab_size": 2, "embedding_norm": True},
)
OFF: tuple[tuple[str, ...], ...] = (
    (),
    ("encoder.0.1",),
    ("decoder.1.2", "decoder.3.0"),
    ("encoder.3",),
    ("decoder.2",),
    ("decoder.4",),
    ("encoder.0.0.2.1",),
    ("decoder.1.1.3.2", "decoder.0.0.2.0"),
    ("decoder.1.0.0.0", "decoder.1.0.0.1", "decoder.1.0.0.2", "decoder.1.0.0.3", "decoder.1.0.0.4"),
    ("source.1",),
    ("source.4", "encoder.2.2", "decoder.5"),
)


def made(**settings: Any) -> Seq2SeqTask:
    """Return a model whose weights int8 holds exactly, none of them special."""
    tokenizer = train_tokenizer(TEXTS, kind="char")
    sizes = {f"{side}_vocab_size": tokenizer.vocab_size for side in ("source", "target")}
    model = Seq2Seq(replace(CONFIG, **sizes, **settings), seed=3, dtype=np.float64).eval()
    shake(model)
    return quantized(Seq2SeqTask(model, tokenizer, tokenizer, SearchConfig(max_length=6)))


def continuing(**settings: Any) -> CausalLMTask:
    """Return a decoder alone, as `made`."""
    tokenizer = train_tokenizer(TEXTS, kind="char")
    config = CausalLMConfig(
        vocab_size=tokenizer.vocab_size,
        d_model=12,
        num_attention_heads=3,
        ffn_dim=7,
        num_hidden_layers=2,
        max_position_embeddings=17,
    )
    model = CausalLM(replace(config, **settings), seed=3, dtype=np.float64).eval()
    shake(model)
    return quantized(CausalLMTask(model, tokenizer, tokenizer, SearchConfig(max_length=6)))


def masking(**settings: Any) -> MaskedLMTask:
    """Return an encoder alone that fills masks, as `made`."""
    tokenizer = train_tokenizer(TEXTS, kind="char")
    config = MaskedLMConfig(vocab_size=tokenizer.vocab_size + 1, **ALONE)
    model = MaskedLM(replace(config, **settings), seed=3, dtype=np.float64).eval()
    shake(model)
    return quantized(MaskedLMTask.of(model, [tokenizer]))


def labelling(**settings: Any) -> ClassifierTask:
    """Return an encoder alone that gives labels, as `made`."""
    tokenizer = train_tokenizer(TEXTS, kind="char")
    token = settings.get("labels") == "token"
    labels = train_tokenizer(["fruit", "some word", "taxi"], kind="word" if token else "label")
    sizes = {"vocab_size": tokenizer.vocab_size, "label_vocab_size": labels.vocab_size}
    config = ClassifierConfig(**sizes, **ALONE)
    model = Classifier(replace(config, **settings), seed=3, dtype=np.float64).eval()
    shake(model)
    return quantized(ClassifierTask.of(model, [tokenizer, labels]))


def read_alone(task: Any, settings: dict[str, Any]) -> tuple[str, str, list[int], list[int]]:
    """Return a text, an answer to it, what an encoder alone reads, and the rows that answer."""
    if isinstance(task, MaskedLMTask):
        text, config = "ba[MASK] cab[MASK]", task.model.config
        ids = [config.bos_token_id, *task.token_ids(text), config.eos_token_id]
        return text, "pn", ids, [i for i, token in enumerate(ids) if token == config.mask_id]
    text, token = "banac", settings.get("labels") == "token"
    ids = task.source.encode(text)
    answer = "word taxi some fruit taxi" if token else "some word"
    return text, answer, ids, list(range(len(ids))) if token else [0]


def quantized(task: Any) -> Any:
    """Return the task in float64, on the numbers that its int8 weights stand for."""
    state = {name: x.astype(np.float32) for name, x in task.model.state_dict().items()}
    model = type(task.model)(task.model.config, dtype=np.float64).eval()
    model.load_state_dict(dequantize(quantize(state, "int8")))
    return replace(task, model=model)


def in_node(task: Seq2SeqTask, cases: Sequence[dict[str, Any]], folder: Path) -> Any:
    """Return what the page's forward pass makes of the cases."""
    path = folder / "cases.json"
    path.write_text(json.dumps({"record": runnable(task), "cases": cases}), encoding="utf-8")
    done = subprocess.run(
        ["node", "test/forward.mjs", str(path)],
        cwd=VIEWER,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def without(task: Any, off: Sequence[str], source: int, read: int) -> Any:
    """Return a copy of the model with these parts zeroed or masked, for texts of these lengths."""
    model = type(task.model)(task.model.config, dtype=np.float64).eval()
    model.load_state_dict(task.model.state_dict())
    stacks = model.stacks()
    for name in off:
        where, *numbers = name.split(".")
        first, *more = map(int, numbers)
        if where == "source":
            hidden = np.arange(source) == first
            for name, stack in stacks.items():
                for attention in stack.attentions(memory=name == "decoder"):
                    masked(attention, hidden)
            continue
        body: Any = stacks[where].steps[first].block.body
        cross = stacks[where].steps[first].block.memory
        if not more:
            last = body.out_proj if hasattr(body, "out_proj") else body.linear2
            last.weight.data[:] = 0
            if last.bias is not None:
                last.bias.data[:] = 0
            continue
        d, head = body.head_width, more[0]
        if len(more) == 1:
            body.out_proj.weight.data[:, head * d : (head + 1) * d] = 0
            continue
        queries = source if where == "encoder" else read
        lengths = (queries, source if cross else queries)
        mask = np.zeros((body.config.num_heads, *lengths), bool)
        if more[1] < lengths[0] and more[2] < lengths[1]:
            mask[head, more[1], more[2]] = True
        masked(body, mask)
    return model


def masked(attention: Any, mask: np.ndarray) -> None:
    attention.config = replace(attention.config, rule=attention.config.rule & rules.mask(mask))


def run(task: Seq2SeqTask, off: Sequence[str], source: list[int], answer: list[int]) -> Any:
    """Return (logits, recorder) of the library."""
    config = task.model.config
    read = [config.bos_token_id, *answer]
    model = without(task, off, len(source), len(read))
    batch = Batch(Packed.of([source]), Packed.of([[*read, config.eos_token_id]]))
    with dispatch.reference(), Recorder() as recorder:
        rows, _ = model.decode_rows(batch)
        logits = model.output(rows)
    return logits, recorder, rows


def greedy(task: Seq2SeqTask, off: Sequence[str], source: list[int]) -> tuple[list[int], bool]:
    """Return the tokens that the library finds most likely, and whether they ended."""
    answer: list[int] = []
    while len(answer) < task.search.max_length:
        logits = run(task, off, source, answer)[0][-1]
        logits[list(task.model.config.suppress_tokens)] = -np.inf
        token = int(logits.argmax())
        if token == task.model.config.eos_token_id:
            return answer, True
        answer.append(token)
    return answer, False


def close(page: Any, library: np.ndarray) -> None:
    expected = library.ravel()
    assert len(page) == len(expected)
    assert np.abs(np.array(page) - expected).max() <= 1e-5 * np.abs(expected).max()


def check(task: Seq2SeqTask, off: Sequence[str], found: Any, answer: list[int]) -> None:
    """Hold one case of the page against the library: rows, logits, greedy answer, its losses."""
    source = found["ids"]
    logits, recorder, rows = run(task, off, source, answer)
    close(found["logits"], logits)
    close(found["decoder"]["rows"], rows)
    for name, stack in task.model.stacks().items():
        for i, step in enumerate(stack.steps):
            path = f"{name}.layers.{step.layer}.{step.number}"
            whole, sublayer = recorder.rows[path], recorder.rows[f"{path}.sublayer"]
            close(found[name]["inputs"][i], whole.x)
            close(found[name]["outputs"][i], sublayer.y)
    own, ended = greedy(task, off, source)
    assert (found["answer"]["ids"], found["answer"]["ended"]) == (own, ended)
    for guessed in found["guessed"]:
        assert (guessed["ids"], guessed["ended"]) == (own, ended)
        assert guessed["losses"] == pytest.approx(found["answer"]["losses"], abs=1e-5)
    log_p, _ = ops.log_softmax(logits)
    expected = [*answer, task.model.config.eos_token_id]
    losses = [-log_p[i, token] for i, token in enumerate(expected)]
    np.testing.assert_allclose(found["losses"], losses, atol=1e-5, rtol=1e-5)


@pytest.mark.oracle("node")
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ", ".join(settings) or "paper")
def test_every_row_and_every_ablation_equal_the_librarys(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    task = made(**settings)
    answer = task.target.encode("nap b")
    cases = [{"text": "banac", "answer": answer, "off": off} for off in known(task, OFF)]
    for case, found in zip(cases, in_node(task, cases, tmp_path), strict=True):
        check(task, case["off"], found, answer)


@pytest.mark.oracle("node")
def test_a_token_that_is_never_generated_is_in_no_answer_of_the_page(tmp_path: Path) -> None:
    task = made()
    free = greedy(task, [], task.source.encode("banac"))[0]
    config = replace(task.model.config, suppress_tokens=tuple(set(free[:2])))
    model = Seq2Seq(config).eval()
    model.load_state_dict(task.model.state_dict())
    silent = replace(task, model=model)
    answer = task.target.encode("nap")
    (found,) = in_node(silent, [{"text": "banac", "answer": answer, "off": []}], tmp_path)
    check(silent, [], found, answer)
    assert free
    assert not {*free[:2]} & {*found["answer"]["ids"]}


def part_of(task: Seq2SeqTask, recorder: Any, name: str) -> np.ndarray:
    """Return what a sublayer, or one head of it through the output layer, added in a run."""
    stack, i, *head = name.split(".")
    step = task.model.stacks()[stack].steps[int(i)]
    if not head:
        path = f"{stack}.layers.{step.layer}.{step.number}.sublayer"
        return np.asarray(recorder.rows[path].y)
    body: Any = step.block.body
    seen = recorder.maps[{id(m): path for path, m in task.model.named_modules()}[id(body)]]
    h, d = int(head[0]), body.head_width
    z = seen.probabilities[0, h] @ seen.v[0, h]
    return z @ body.out_proj.weight.data[:, h * d : (h + 1) * d].T


@pytest.mark.oracle("node")
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_part_replaced_by_its_mean_or_another_texts_rows_is_the_librarys_with_those_rows(
    norm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = made(norm=norm, d_model=40, num_attention_heads=5, ffn_dim=56)
    text, other, answer = "banac", "cab", task.target.encode("nap b")
    parts = ["encoder.0.1", "encoder.3", "decoder.1.2", "decoder.2", "decoder.3.0", "decoder.4"]
    cases: list[dict[str, Any]] = [
        {"text": text, "answer": answer, "off": [part], "instead": instead}
        for part in parts
        for instead in ({"mode": "mean"}, {"mode": "text", "from": other})
    ]
    runs = {word: run(task, [], task.source.encode(word), answer)[1] for word in (text, other)}
    for case, found in zip(cases, in_node(task, cases, tmp_path), strict=True):
        (part,), mean = case["off"], case["instead"]["mode"] == "mean"
        rows = part_of(task, runs[text if mean else other], part)
        rows = rows.mean(0, keepdims=True) if mean else rows
        stack, i, *_ = part.split(".")
        count = len(answer) + 1 if stack == "decoder" else len(found["ids"])
        added = rows[np.minimum(np.arange(count), len(rows) - 1)]
        model = without(task, [part], len(found["ids"]), count)
        block = model.stacks()[stack].steps[int(i)].block
        body, name = block.body, "run_cross" if block.memory else "run"
        sublayer = getattr(type(body), name)

        def replaced(self: Any, x: Any, context: Any, _of: Any = (body, sublayer, added)) -> Any:
            body, sublayer, added = _of
            y, backward = sublayer(self, x, context)
            # A network is a tuple of layers, made anew each time.
            own = self is body or getattr(self, "linear2", None) is getattr(body, "linear2", body)
            return y + added if own else y, backward

        read = [task.model.config.bos_token_id, *answer, task.model.config.eos_token_id]
        with monkeypatch.context() as patch:
            patch.setattr(type(body), name, replaced)
            decoded, _ = model.decode_rows(Batch(Packed.of([found["ids"]]), Packed.of([read])))
        logits = model.output(decoded)
        close(found["logits"], logits)
        zeros = run(task, [part], found["ids"], answer)[0]
        assert np.abs(logits - zeros).max() > 1e-3


def known(task: Seq2SeqTask, off: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return what there is to switch off: a network has no heads."""

    def has(name: str) -> bool:
        where, first, *more = name.split(".")
        stack = task.model.stacks().get(where)
        return stack is None or not more or hasattr(stack.steps[int(first)].block.body, "out_proj")

    return [[name for name in names if has(name)] for names in off]


@pytest.mark.oracle("node")
def test_the_pronunciation_model_answers_and_fails_as_the_library_does(tmp_path: Path) -> None:
    task = quantized(pellucid.load("g2p-en"))
    word, off = "attention", [[], ["decoder.4.1"], ["encoder.3", "source.2"], ["decoder.7"]]
    answer = greedy(task, [], task.source.encode(word))[0]
    cases = [{"text": word, "answer": answer, "off": names} for names in off]
    for case, found in zip(cases, in_node(task, cases, tmp_path), strict=True):
        check(task, case["off"], found, answer)


@pytest.mark.oracle("node")
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_what_the_parts_add_to_a_logit_adds_up_to_it(norm: str, tmp_path: Path) -> None:
    task = made(norm=norm)
    answer = task.target.encode("nap")
    (found,) = in_node(task, [{"text": "split", "answer": answer, "off": []}], tmp_path)
    entries = {entry["part"]: entry["logit"] for entry in found["ledger"]}
    logit = run(task, [], found["ids"], answer)[0][0, answer[0]]
    assert sum(entries.values()) == pytest.approx(logit, rel=1e-5)
    assert set(entries) == {
        "", "bias", *(f"decoder.{i}.{h}" for i in (0, 1, 3, 4) for h in range(3)),
        "decoder.2", "decoder.5",
    }  # fmt: skip


@pytest.mark.oracle("node")
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_what_the_model_would_say_after_each_part_is_its_output_of_those_rows(
    norm: str, tmp_path: Path
) -> None:
    task = made(norm=norm)
    (found,) = in_node(task, [{"text": "split", "answer": [], "off": []}], tmp_path)
    recorder, stack = run(task, [], found["ids"], [])[1], task.model.stacks()["decoder"]
    after = [recorder.rows[f"decoder.layers.{s.layer}.{s.number}"] for s in stack.steps]
    assert stack.norm is not None
    for said, rows in zip(found["lens"], [after[0].x, *(part.y for part in after)], strict=True):
        log_p, _ = ops.log_softmax(task.model.output(stack.norm(rows)))
        assert said["says"] == log_p[0].argmax()
        assert said["p"] == pytest.approx(np.exp(log_p[0].max()), rel=1e-5)


LONGER = "the theme of these: 나는 가다나, 가나 3.14 then it's theirs\u00a0"


@cache
def own_tokenizers() -> list[Tokenizer]:
    texts = ["가나다 Ǆ bΣ", "É.", "hé llo?", "İx !"]
    steps = (
        (), ("nfc",), ("nfd",), ("lowercase",), ("whitespace",), ("nfd", "lowercase"),
        ("punctuation", "whitespace"),
    )  # fmt: skip
    units = [
        train_tokenizer(texts, kind, None, some) for kind in ("char", "word") for some in steps
    ]
    pieces = [train_tokenizer([*texts, LONGER], "bpe", 320, some) for some in steps[1::2]]
    return units + pieces


@pytest.mark.oracle("node")
def test_texts_become_the_tokens_of_the_library_and_come_back(tmp_path: Path) -> None:
    texts = ["", " ", "가나", "각 Ǆ", "e\u0301É.  x\u0085y", "ΑΣ Σ", "<s> </s>", "?!a,b"]
    texts += ["\ufeffİ😀", "it's we'll  x 12 3!? \n\n y\u2003\u0085 z\t", LONGER, LONGER[::-1]]
    for tokenizer in own_tokenizers():
        task = made()
        config = replace(task.model.config, source_vocab_size=tokenizer.vocab_size)
        config = replace(config, max_position_embeddings=90)
        model = Seq2Seq(replace(config, target_vocab_size=tokenizer.vocab_size)).eval()
        task = Seq2SeqTask(model, tokenizer, tokenizer, SearchConfig(max_length=5))
        given = [text for text in texts if tokenizer.encode(text)]
        cases = [{"text": text, "answer": [], "off": []} for text in given]
        for case, found in zip(cases, in_node(task, cases, tmp_path), strict=True):
            assert found["ids"] == tokenizer.encode(case["text"])
            assert found["text"] == tokenizer.decode(found["answer"]["ids"])


@pytest.mark.oracle("node")
@pytest.mark.parametrize("kind", ["char", "word", "bpe"])
def test_a_mask_is_one_token_as_in_the_library(kind: str, tmp_path: Path) -> None:
    texts = ["가나다 나비", "a bc!? 가", "x\ufffcy"]
    tokenizer = train_tokenizer(texts, kind, 290)
    config = MaskedLMConfig(**{**ALONE, "max_position_embeddings": 90})
    config = replace(config, vocab_size=tokenizer.vocab_size + 1)
    task = MaskedLMTask.of(MaskedLM(config).eval(), [tokenizer])
    given = [
        "가[MASK]다", "가나다 [MASK] 나비", "[MASK]", "[MASK][MASK] bc", "a  [MASK]bc![MASK]",
        "a bc", "나비[MASK] [MASK]?", "가 나 [mask]", "[MASK] [MASK]\ufffc가 a bc 가나다 나비",
    ]  # fmt: skip
    cases = []
    for text in given:
        with suppress(UserError):
            cases.append((text, task.token_ids(text)))
    assert len(cases) > 3
    asked = [{"text": text, "answer": [], "off": []} for text, _ in cases]
    for (text, ids), found in zip(cases, in_node(task, asked, tmp_path), strict=True):
        assert found["ids"] == [config.bos_token_id, *ids, config.eos_token_id], text


@pytest.mark.oracle("node")
@pytest.mark.parametrize("sentences", [1, 2, None])
@pytest.mark.parametrize("words", [False, True])
def test_a_text_is_split_as_the_library_splits_it(
    sentences: int | None, words: bool, tmp_path: Path
) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz'.!?가나"
    tokenizer = train_tokenizer([letters if words else f"{letters} 「」。？,"], "char")
    task = made()
    config = replace(task.model.config, source_vocab_size=tokenizer.vocab_size)
    model = Seq2Seq(replace(config, max_position_embeddings=23)).eval()
    task = Seq2SeqTask(model, tokenizer, task.target, SearchConfig(), sentences=sentences)
    assert task.reads_words == words
    texts = [
        "ab cd.", "ab. cd! ef? gh", "\n ab.\r\n\ncd. 가나? \n", "dr. no, on d. a. it is. so.",
        "it's ''a-b' x", "가。나？ 「a。」b", "", " ", "...", "a" * 19 + ". b. c.", "a\u2028b",
        "\ufeffab\u200b \u2060cd \u2764\ufe0f", "ΩΨ a. ab Ω", "e\u0301 a",
    ]  # fmt: skip
    given = []
    for text in texts:
        with suppress(UserError):
            given.append((text, task.passage(text)))
    found = in_node(task, [{"text": text} for text, _ in given], tmp_path)
    for (text, right), own in zip(given, found, strict=True):
        assert (own["pieces"], own["kept"]) == right, text
        assert own["joined"] == right.joined([piece.upper() for piece in right.pieces])
    assert len(given) > 9


def typed_texts(draws: random.Random, count: int) -> list[str]:
    """Return texts of letters, marks, white space and what is not seen, in several forms."""
    some = "abXY é\u0301\u0308ßﬁİıΣς가각힣ㄱ가Ａ１٣३½²'\u2019\"\u201c«-\u2014.。,、?؟~〜·・/⁄漢"
    hidden = " \t\n\r\x0b\x1c\x1f\x85\xa0\u2028\u3000"
    hidden += "\0\x7f\xad\u200b\u200d\u2060\ufe0f\ufeff\u0640\U000e0041😀"
    every = [*some, *hidden, *(chr(draws.randrange(0x20, 0xD7FF)) for _ in range(97))]
    return ["".join(draws.choices(every, k=draws.randrange(1, 23))) for _ in range(count)]


@pytest.mark.oracle("node")
def test_the_page_reads_typed_texts_as_the_library_does(tmp_path: Path) -> None:
    draws, cases = random.Random(5), []
    for form in (None, "NFC", "NFD"):
        for whole in (True, False):
            for kind in ("char", "word", "bpe"):
                texts = typed_texts(draws, 11)
                texts += [unicodedata.normalize("NFC", "안녕 é it's"), "“TV” 1/2"]
                texts = texts if form is None else [unicodedata.normalize(form, t) for t in texts]
                own = [text.strip() for text in texts] if whole else texts
                cases.append(
                    (
                        train_tokenizer(own, kind, 400, reading=reading_of(own, whole)),
                        typed_texts(draws, 101),
                    )
                )
    read_as_the_library(cases, made().model.config, tmp_path)


def read_as_the_library(cases: list[tuple[Any, list[str]]], config: Any, folder: Path) -> None:
    """Assert that the page's tokens of texts are the library's, and that they write the same."""
    path = folder / "cases.json"
    records = [(_tokenizer(tokenizer, "source", config), texts) for tokenizer, texts in cases]
    path.write_text(json.dumps(records), encoding="utf-8")
    command = ["node", "test/units.mjs", str(path)]
    done = subprocess.run(command, cwd=VIEWER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for (tokenizer, texts), each in zip(cases, json.loads(done.stdout), strict=True):
        for text, (ids, written, known) in zip(texts, each, strict=True):
            assert ids == tokenizer.encode(text), (records[0][0]["kind"], text)
            assert written == tokenizer.decode(ids), text
            if all(
                unicodedata.category(c) != "Cn" for c in text
            ):  # later Unicode has letters there
                assert known == tokenizer.knows(text), text


def bert_tokenizer(pieces: Sequence[str] = (), **settings: Any) -> ForeignTokenizer:
    """Return a WordPiece tokenizer as a BERT folder has it."""
    words = "the cat sat ##s . ! ? , ' ##t don m re 漢 가 ##나 나 é e ##é ##e strasse x 1 ##2 # ##"
    some = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words.split(), *pieces]
    vocab = {piece: i for i, piece in enumerate(some)}
    core = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token="[UNK]"))
    core.normalizer = tokenizers.normalizers.BertNormalizer(**settings)
    core.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    core.decoder = tokenizers.decoders.WordPiece()
    core.add_special_tokens(some[:5])
    ids = [("[CLS]", 2), ("[SEP]", 3)]
    core.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", None, ids)
    return ForeignTokenizer(core)


def texts_for(draws: random.Random, vocabulary: Sequence[str], count: int) -> list[str]:
    """Return texts of pieces with and without spaces between them, and of signs of every plane."""
    between = [" ", "", "  ", "\u3000", "'", ".", "\u200b", "\u0301", "한", "🥰", "漢", "É"]
    texts = []
    for _ in range(count):
        some = [draws.choice(vocabulary).removeprefix("##") for _ in range(draws.randrange(1, 9))]
        some += ["".join(map(chr, draws.choices([*range(0xD7FF), *range(0xE000, 0x30000)], k=2)))]
        draws.shuffle(some)
        texts.append("".join(x + draws.choice(between) for x in some))
    return texts


@pytest.mark.oracle("node")
def test_the_page_reads_word_pieces_as_the_library_does(tmp_path: Path) -> None:
    draws = random.Random(7)
    some = [chr(draws.randrange(0x21, 0xD7FF)) for _ in range(301)]
    kinds = [
        bert_tokenizer([*some, *(f"##{c}" for c in some)], **settings)
        for settings in (
            {},
            {"lowercase": False},
            {"lowercase": False, "strip_accents": True, "handle_chinese_chars": False},
            {"clean_text": False, "strip_accents": False},
        )
    ]
    article = ForeignTokenizer.load(VIEWER.parent / "studies" / "article-003.tokenizer.json")
    texts = [
        "",
        " ",
        "x" * 100,
        "strasse" * 15,
        "[MASK] cats[SEP]don't",
        "[mask]",
        "<s>가</s>",
        "😀",
    ]
    texts += [
        "constructor",
        "안녕하세요? 사랑해 🥰",
        "the cat\u0301s\ufe0f",
        "ΑΣ İ ǅ",
        "x\x0by\tx\x85y\0",
    ]
    cases: list[tuple[Any, list[str]]] = []
    for tokenizer in (*kinds, kinds[0].framed(), article):
        names = tokenizer.tokens(range(tokenizer.vocab_size))
        typed = [*texts, *texts_for(draws, names, 301), *typed_texts(draws, 101)]
        cases.append((tokenizer, typed))
    read_as_the_library(cases, CONFIG, tmp_path)


def test_what_the_page_cannot_run_is_refused_by_name() -> None:
    task = made()
    for settings, named in (
        ({"attention_sinks": True}, "Attention sinks = True"),
        ({"d_model": 1200, "ffn_dim": 1}, f"at most {LARGEST:,}"),
    ):
        model = Seq2Seq(replace(task.model.config, **settings))
        with pytest.raises(UnsupportedError, match=named):
            runnable(replace(task, model=model))
    labels = train_tokenizer(TEXTS, "label")
    with pytest.raises(UnsupportedError, match="source tokenizer is label"):
        runnable(replace(task, source=labels))
    with pytest.raises(UnsupportedError, match="models with their tokenizers, not Seq2Seq"):
        runnable(task.model)
    with pytest.raises(UnsupportedError, match="predict tokens or labels"):
        runnable(masking(head=False))


@pytest.mark.oracle("node")
@pytest.mark.parametrize(
    ("make", "settings"),
    [(make, each) for make, some in ((masking, MASKING), (labelling, LABELLING)) for each in some],
    ids=lambda each: each.__name__ if callable(each) else ", ".join(each) or "usual",
)
def test_an_encoder_alone_equals_the_librarys_with_parts_off_and_in_every_gradient(
    make: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    task = make(**settings)
    text, wanted, ids, places = read_alone(task, settings)
    answer = task.target.encode(wanted)
    offs = known(task, [[], *OFF_ALONE])
    counted = list(range(len(places)))
    cases = [{"text": text, "answer": answer, "off": off, "counted": counted} for off in offs]
    never = [] if make is masking else range(4)
    for off, found in zip(offs, in_node(task, cases, tmp_path), strict=True):
        assert found["ids"] == ids
        model = without(task, off, len(ids), 0)
        with dispatch.reference():
            logits, backward = model.forward(Packed.of([ids]))
            logits[:, never] = -np.inf
            p, _ = ops.softmax(logits[places])
            d = np.zeros_like(logits)
            p[range(len(answer)), answer] -= 1.0
            d[places] = p
            backward(d)
        page = np.reshape(np.array(found["logits"], float), logits.shape)
        page[:, never] = -np.inf  # JSON has null
        close(page[np.isfinite(page)], logits[np.isfinite(logits)])
        log_p, _ = ops.log_softmax(logits[places])
        assert found["answer"] == {
            "ids": logits[places].argmax(axis=1).tolist(),
            "losses": pytest.approx(-log_p.max(axis=1), abs=1e-5),
            "ended": False,
        }
        losses = -log_p[range(len(answer)), answer]
        np.testing.assert_allclose(found["losses"], losses, atol=1e-5, rtol=1e-5)
        if off:
            continue
        gradients = {name: x.grad for name, x in model.named_parameters() if x.grad is not None}
        largest = max(np.abs(x).max() for x in gradients.values())
        named = dict(found["gradients"])
        left = {name for name in set(gradients) - set(named) if "relative" not in name}
        assert not left
        for name, x in gradients.items():
            if name in named:
                assert np.abs(np.array(named[name]) - x.ravel()).max() <= 1e-5 * largest, name
        shares = sum(entry["logit"] for entry in found["ledger"])
        assert shares == pytest.approx(logits[places[0], answer[0]], rel=1e-5)
        assert found["lens"][-1]["says"] == logits[places[0]].argmax()
        assert found["lens"][-1]["p"] == pytest.approx(np.exp(log_p[0].max()), rel=1e-5)


@pytest.mark.oracle("node")
def test_a_decoder_alone_without_parts_equals_the_librarys_without_them(tmp_path: Path) -> None:
    task = continuing(norm="pre", positions="rotary")
    text, answer = "banana", [5, 7]
    offs: list[list[str]] = [[], ["decoder.0.1"], ["decoder.2.2", "source.1"], ["decoder.3"]]
    found = in_node(task, [{"text": text, "answer": answer, "off": off} for off in offs], tmp_path)
    read = [task.model.config.bos_token_id, *task.source.encode(text), *answer]
    d = task.model.config.head_width
    for off, case in zip(offs, found, strict=True):
        model = quantized(task).model
        steps = model.stacks()["decoder"].steps
        for where, first, *head in (name.split(".") for name in off):
            if where == "source":
                mask = np.zeros((len(read), len(read)), bool)
                mask[:, 1 + int(first)] = True
                for attention in model.stacks()["decoder"].attentions():
                    masked(attention, mask)
            elif head:
                columns = slice(int(head[0]) * d, (int(head[0]) + 1) * d)
                steps[int(first)].block.body.out_proj.weight.data[:, columns] = 0
            else:
                steps[int(first)].block.body.linear2.weight.data[:] = 0
                steps[int(first)].block.body.linear2.bias.data[:] = 0
        with dispatch.reference():
            close(case["logits"], model(Packed.of([read])))
