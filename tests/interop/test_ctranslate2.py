"""The same weights in CTranslate2's engine: the same log-probabilities, the same tokens."""

from __future__ import annotations

import errno
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles import oracle

from pellucid import ops
from pellucid.core import dispatch
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UserError
from pellucid.data.tokenizers import Tokenizer, train_tokenizer
from pellucid.generation import SearchConfig, search
from pellucid.interop.ctranslate2 import write_ctranslate2
from pellucid.models import CausalLM, CausalLMConfig, Seq2Seq, Seq2SeqConfig

pytestmark = pytest.mark.oracle("ctranslate2")
ctranslate2 = oracle("ctranslate2")

TOKENS: Tokenizer = train_tokenizer(["abcdefghij klmnopq"], "char", None, ())
NAMES = TOKENS.vocabulary
V = len(NAMES)


SHAPE: dict[str, Any] = {
    "d_model": 28, "num_attention_heads": 7, "ffn_dim": 41, "max_position_embeddings": 31,
}  # fmt: skip
LLAMA_3: dict[str, Any] = {
    "positions": "rotary",
    "rope_low_freq_factor": 1.0,
    "rope_high_freq_factor": 4.0,
    "rope_factor": 3.0,
    "rope_original_positions": 11,
}


def shaken(**settings: Any) -> Seq2Seq:
    model: Seq2Seq = noisy(Seq2Seq(Seq2SeqConfig(V, V, **{**SHAPE, **settings}), seed=5))
    return model


def noisy(model: Any) -> Any:
    noise = np.random.default_rng(0)
    for parameter in model.parameters():
        shake = 0.15 * noise.standard_normal(parameter.shape)
        parameter.data = (parameter.data + shake).astype(np.float32)
    return model.eval()


def sequences(seed: int, n: int = 13) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(4, V, int(draw.integers(1, 19))).tolist() for _ in range(n)]


def named(rows: list[list[int]]) -> list[list[str]]:
    return [[NAMES[i] for i in row] for row in rows]


def opened(model: Seq2Seq, folder: Path, quantization: Any = "float32") -> Any:
    write_ctranslate2(model, TOKENS, TOKENS, folder, quantization)
    return ctranslate2.Translator(str(folder), compute_type=quantization, intra_threads=1)


@pytest.mark.parametrize(
    "settings",
    [
        {"norm": "pre"},
        {"norm": "post"},
        {"norm": "pre", "final_norm": False},
        {"norm": "post", "final_norm": False, "encoder_layers": 1, "decoder_layers": 2},
        {"attention_scale": "d_k", "embedding_scale": 2.5, "position_scale": 0.3},
        {"embedding_scale": 1.0, "positions": "learned", "tie_embeddings": "all"},
        {"activation_function": "gelu", "tie_embeddings": "output", "layer_norm_eps": 0.1},
        {"activation_function": "gelu_tanh", "output_bias": False},
        {"activation_function": "silu", "attention_scale": 0.7},
        {"attention_scale": "learned", "norm": "pre"},
        {
            "norm_type": "rms_norm",
            "activation_function": "swiglu",
            "positions": "rotary",
            "rope_theta": 50.0,
            "num_attention_heads": 14,
            "num_key_value_heads": 7,
            "rope_factor": 4.0,
            "linear_bias": False,
        },
        {
            "norm": "pre",
            "activation_function": "geglu",
            "head_dim": 6,
            "embedding_norm": True,
            "positions": "relative",
            "relative_attention_num_buckets": 6,
            "relative_attention_max_distance": 5,
            "num_key_value_heads": 1,
        },
        {"activation_function": "geglu_tanh", **LLAMA_3},
    ],
)
def test_log_probabilities_are_ours(settings: dict[str, Any], tmp_path: Path) -> None:
    model = shaken(**settings)
    theirs = opened(model, tmp_path / "model")
    sources, targets = sequences(1), sequences(2)
    scored = theirs.score_batch(named(sources), named(targets))
    batch = Batch(Packed.of(sources), Packed.of([[1, *tokens, 2] for tokens in targets]))
    log_p, _ = ops.log_softmax(model.output(model.decode_rows(batch)[0]))
    expected = batch.target.without_first().tokens
    np.testing.assert_allclose(
        np.concatenate([one.log_probs for one in scored]),
        log_p[np.arange(len(expected)), expected],
        rtol=0,
        atol=5e-5,
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"norm_type": "rms_norm", "activation_function": "swiglu", "qk_norm": True,
         "num_key_value_heads": 1, "head_dim": 6, "linear_bias": False, **LLAMA_3},
        {"positions": "alibi", "qkv_bias": False},
    ],
)  # fmt: skip
def test_a_decoder_alone_is_a_generator(settings: dict[str, Any], tmp_path: Path) -> None:
    config = CausalLMConfig(vocab_size=V, num_hidden_layers=2, **SHAPE, **{"norm": "pre"})
    model = noisy(CausalLM(replace(config, **settings), seed=5))
    write_ctranslate2(model, TOKENS, TOKENS, tmp_path / "model")
    theirs = ctranslate2.Generator(str(tmp_path / "model"), intra_threads=1)
    texts = [[1, *tokens] for tokens in sequences(2)]
    scored = theirs.score_batch(named(texts))
    log_p, _ = ops.log_softmax(model(Packed.of([text[:-1] for text in texts])))
    expected = np.concatenate([text[1:] for text in texts])
    found = np.concatenate([one.log_probs for one in scored])
    np.testing.assert_allclose(found, log_p[np.arange(len(expected)), expected], atol=5e-5)
    made = theirs.generate_batch(
        named([[1]]), beam_size=1, max_length=9, include_prompt_in_result=False
    )
    with dispatch.reference():
        (ours,) = search(model, Packed.of([[]]), SearchConfig(beam=1, max_length=9))[0]
    assert made[0].sequences_ids[0] == list(ours.tokens)


@pytest.mark.parametrize("settings", [{"norm": "post"}, {"norm": "pre", "qkv_bias": False}])
@pytest.mark.parametrize("beam", [1, 5])
def test_tokens_are_ours(beam: int, settings: dict[str, Any], tmp_path: Path) -> None:
    model = shaken(**settings)
    assert model.output.bias is not None
    model.output.bias.data[2] += 2.5  # so that answers end
    theirs = opened(model, tmp_path / "model")
    sources = sequences(3, n=61)
    config = SearchConfig(beam=beam, max_length=29, length_penalty=0.0)
    ours = [answers[0] for answers in search(model, Packed.of(sources), config)]
    found = theirs.translate_batch(
        named(sources), beam_size=beam, max_decoding_length=29, min_decoding_length=0,
        length_penalty=0.0,
    )  # fmt: skip
    # At the longest length the two count an unfinished answer differently: we add its end.
    ended = [i for i, answer in enumerate(ours) if answer.finished]
    assert len(ended) > 40
    tokens = named([list(answer.tokens) for answer in ours])
    assert [tokens[i] for i in ended] == [found[i].hypotheses[0] for i in ended]


@pytest.mark.parametrize("biased", [True, False])
def test_a_token_that_is_suppressed_is_never_generated(biased: bool, tmp_path: Path) -> None:
    model = shaken(norm="pre", output_bias=biased)
    sources = sequences(3, n=61)
    config = SearchConfig(max_length=7)
    before = [answers[0].tokens for answers in search(model, Packed.of(sources), config)]
    common = Counter(token for tokens in before for token in tokens).most_common(2)
    never = tuple(token for token, _ in common)
    model.config = replace(model.config, suppress_tokens=never)
    ours = [answers[0] for answers in search(model, Packed.of(sources), config)]
    assert not any(token in never for answer in ours for token in answer.tokens)
    found = opened(model, tmp_path / "model").translate_batch(
        named(sources), beam_size=1, max_decoding_length=7
    )
    assert [answer.hypotheses[0] for answer in found] == named([list(a.tokens) for a in ours])


def test_int8_is_smaller_and_near(tmp_path: Path) -> None:
    """Its weights, computed in float32: without VNNI its products of int8 saturate (0.16)."""
    model = shaken(norm="pre", tie_embeddings="all")
    before = {name: array.copy() for name, array in model.state_dict().items()}
    whole = opened(model, tmp_path / "f4")
    opened(model, tmp_path / "i1", "int8")
    small = ctranslate2.Translator(str(tmp_path / "i1"), compute_type="float32", intra_threads=1)
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("f4", "i1")]
    assert sizes[1] < 0.5 * sizes[0]
    sources, targets = named(sequences(1)), named(sequences(2))
    a, b = (np.concatenate([one.log_probs for one in t.score_batch(sources, targets)])
            for t in (whole, small))  # fmt: skip
    assert 0 < np.abs(a - b).mean() < 0.05
    for name, array in model.state_dict().items():  # its quantizer would write into them
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"ffn_before": 1}, "layer of network, self, network: .*ffn_before must be 0"),
        ({"ffn_after": 2}, "layer of self, network, network: .*ffn_after 1"),
        ({"activation_function": "leaky_relu"}, "activation = 'leaky_relu' .*supported: relu, "),
        ({"sliding_window": 3}, r"rule = Window\(size=3\)"),
        ({"attention_softcap": 2.0}, r"rule = SoftCap\(cap=2.0\)"),
        ({"positions": "alibi"}, "'alibi' but in a decoder alone"),
        ({"qk_norm": True}, "q_norm.* in cross-attention"),
        ({"encoder_layers": 0}, "without layers: the encoder"),
        ({"decoder_layers": 0}, "without layers: the decoder"),
        ({"end_token_ids": (5,)}, r"end_token_ids = \(5,\): give end_token with every call"),
    ],
)
def test_what_it_cannot_express_is_named(
    settings: dict[str, Any], name: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=name):
        write_ctranslate2(shaken(**settings), TOKENS, TOKENS, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_write_that_fails_leaves_nothing_and_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Any, folder: str) -> None:
        (Path(folder) / "model.bin").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(ctranslate2.specs.TransformerSpec, "save", full)
        with pytest.raises(UserError, match="model: cannot be written: No space left on device"):
            write_ctranslate2(shaken(), TOKENS, TOKENS, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    write_ctranslate2(shaken(), TOKENS, TOKENS, tmp_path / "model", beside={"a": b"1"})
    names = ["a", "config.json", "model.bin", "shared_vocabulary.json"]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == names
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_is_there_is_kept(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="already exists"):
        write_ctranslate2(shaken(), TOKENS, TOKENS, tmp_path)


def test_without_the_package_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(UserError, match=r"pip install 'ctranslate2>="):
        write_ctranslate2(shaken(), TOKENS, TOKENS, tmp_path / "model")
