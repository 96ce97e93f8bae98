"""Compiled decoding: the model's answers, and bits that do not depend on the batch."""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.small import exactly

from pellucid import reference
from pellucid.compiled.answering import Answering
from pellucid.compiled.engine import Engine
from pellucid.core.batch import Packed
from pellucid.core.errors import UsageError
from pellucid.generation import (
    Constraints,
    SampleConfig,
    SearchConfig,
    compile_model,
    sample,
    search,
)
from pellucid.generation.search import ranked, search_once
from pellucid.models import CausalLM, CausalLMConfig, Seq2Seq, Seq2SeqConfig
from pellucid.models.prefix import Prefix, Spelling
from pellucid.models.quantize import dequantize, quantize

V = 37
VARIANTS: dict[str, dict[str, Any]] = {
    "pre-norm": {"norm": "pre"},
    "post-norm": {"norm": "post"},
    "article 003": {"norm": "post", "final_norm": False, "positions": "learned"},
    "learned scales": {"attention_scale": "learned"},
    "article 004": {"ffn_before": 1, "ffn_after": 2, "attention_scale": "d_k^2"},
    "gelu": {"activation_function": "gelu", "norm": "pre", "encoder_layers": 1},
    "gelu_tanh": {"activation_function": "gelu_tanh", "output_bias": False},
    "silu": {"activation_function": "silu", "embedding_scale": 2.0, "position_scale": 0.5},
    "leaky relu": {"activation_function": "leaky_relu", "tie_embeddings": "all"},
    "several ends": {"end_token_ids": (5, 9, 30), "suppress_tokens": (7, 11)},
}

LLAMA: dict[str, Any] = {
    "norm": "pre", "norm_type": "rms_norm", "activation_function": "swiglu", "linear_bias": False,
    "positions": "rotary", "num_key_value_heads": 1, "head_dim": 6,
}  # fmt: skip
MODERN: dict[str, dict[str, Any]] = {  # of both families; the activations are those of above
    "rms norm": {"norm_type": "rms_norm"},
    "grouped heads": {"d_model": 24, "num_attention_heads": 6, "num_key_value_heads": 2},
    "llama": {**LLAMA, "rope_factor": 8.0, "rope_low_freq_factor": 1.0,
              "rope_high_freq_factor": 4.0, "rope_original_positions": 16},
    "qwen 3": {**LLAMA, "qk_norm": True, "attention_scale": "learned", "head_dim": 18,
               "activation_function": "geglu"},
    "gemma": {**LLAMA, "activation_function": "geglu_tanh", "sliding_window": 4},
    "alibi": {"positions": "alibi", "attention_softcap": 1.5, "activation_function": "relu"},
    "t5": {**LLAMA, "positions": "relative", "activation_function": "geglu", "norm": "post",
           "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12,
           "sliding_window": 15, "embedding_norm": True},
}  # fmt: skip


def shaken(model: Any) -> Any:
    noise = np.random.default_rng(0)
    for parameter in model.parameters():
        shake = 0.1 * noise.standard_normal(parameter.shape)
        parameter.data = (parameter.data + shake).astype(np.float32)
    return model.eval()


def same_answers(model: Any, source: Packed, config: SearchConfig) -> list[tuple[Any, Any]]:
    """Search compiled and plain, assert the same tokens, and return both answers by text."""
    found = search(compile_model(model), source, config)
    with reference():
        plain = search(model, source, config)
    both = list(zip(found, plain, strict=True))
    for ours, theirs in both:
        assert [(a.tokens, a.finished) for a in ours] == [(a.tokens, a.finished) for a in theirs]
    return both


SHAPE = {"d_model": 28, "num_attention_heads": 7, "ffn_dim": 41, "max_position_embeddings": 43}


def seq2seq(**settings: Any) -> Seq2Seq:
    shape = {**SHAPE, "source_vocab_size": V, "target_vocab_size": V}
    model: Seq2Seq = shaken(Seq2Seq(Seq2SeqConfig(**{**shape, **settings}), seed=3))
    return model


def language(**settings: Any) -> CausalLM:
    shape = {**SHAPE, "vocab_size": V}
    model: CausalLM = shaken(CausalLM(CausalLMConfig(**{**shape, **settings}), 3))
    return model


def sources(n: int = 17, seed: int = 1) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(3, V, int(length)).tolist() for length in draw.integers(0, 23, n)]


MODELS = [*((seq2seq, settings) for settings in VARIANTS.values()), (language, {}),
          (language, {"attention_scale": "learned"}),
          (language, {"norm": "post", "positions": "sinusoidal"}),
          *((seq2seq, settings) for settings in MODERN.values()),
          *((language, MODERN[n]) for n in ("llama", "qwen 3", "gemma", "alibi"))]  # fmt: skip


@pytest.mark.parametrize(("make", "settings"), MODELS)
def test_compiled_steps_match_the_model(make: Any, settings: dict[str, Any]) -> None:
    model = make(**settings)
    engine = compile_model(model)
    assert isinstance(engine, Engine)
    source, draw = Packed.of(sources()), np.random.default_rng(5)
    states, tokens = [model.start(source), engine.start(source)], np.full(17, 1)
    for step in range(13):
        (theirs, states[0]), (ours, states[1]) = (
            one.step(state, tokens) for one, state in zip((model, engine), states, strict=True)
        )
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
        tokens = draw.integers(3, V, len(tokens))
        if step % 4 == 3:  # hypotheses change places, some come twice, some leave
            rows = draw.integers(0, len(tokens), len(tokens) - 1)
            states, tokens = [state.select(rows) for state in states], tokens[rows]


@pytest.mark.parametrize(("make", "settings"), MODELS)
@pytest.mark.parametrize("beam", [1, 4])
def test_search_finds_what_the_plain_search_finds(
    make: Any, settings: dict[str, Any], beam: int
) -> None:
    """The bound is relative: a sum of log p over tokens grows, and its terms' rounding with it.

    Within 4e-7 to 8e-7 of the sum on the processors tried; an absolute bound held on some of them.
    """
    model, source = make(**settings), Packed.of(sources(7))
    for config in (
        SearchConfig(beam=beam, best=beam, max_length=19),
        SearchConfig(beam=beam, best=1, max_length=11, length_penalty=0.0),
    ):
        for ours, theirs in same_answers(model, source, config):
            found, right = ([(a.log_p, a.score) for a in answers] for answers in (ours, theirs))
            np.testing.assert_allclose(found, right, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("arithmetic", ["float32", "int8"])
@pytest.mark.parametrize(
    ("make", "settings"), [(seq2seq, {"norm": "pre"}), (language, {}), (language, MODERN["qwen 3"])]
)
def test_bits_do_not_depend_on_the_batch(
    make: Any, settings: dict[str, Any], arithmetic: Any
) -> None:
    engine, every = compile_model(make(**settings), arithmetic), sources(n=131)
    config = SearchConfig(beam=3, best=3, max_length=13)
    together = search(engine, Packed.of(every), config)
    for i in (0, 5, 77, 130):
        assert search(engine, Packed.of([every[i]]), config) == [together[i]]
    order = np.random.default_rng(2).permutation(131)[:53]
    shuffled = search(engine, Packed.of([every[i] for i in order]), config)
    assert shuffled == [together[i] for i in order]  # scores too, to the last bit
    log_p, _ = engine.step(engine.start(Packed.of(every)), np.full(131, 1))
    for i in (3, 100):
        alone, _ = engine.step(engine.start(Packed.of([every[i]])), np.array([1]))
        np.testing.assert_array_equal(alone[0], log_p[i])


def test_two_steps_may_continue_from_one_state() -> None:
    engine = compile_model(seq2seq())
    state = engine.start(Packed.of([[4, 5], [6]]))
    _, one = engine.step(state, np.array([1, 1]))
    first, _ = engine.step(one, np.array([7, 8]))
    engine.step(one, np.array([9, 10]))
    again, _ = engine.step(one, np.array([7, 8]))
    np.testing.assert_array_equal(first, again)


def test_long_answers_outgrow_the_first_cache() -> None:
    model = seq2seq(max_position_embeddings=131)
    config = SearchConfig(beam=2, max_length=120)
    found = search(compile_model(model), Packed.of([[5, 6, 7]]), config)
    with reference():
        plain = search(model, Packed.of([[5, 6, 7]]), config)
    assert found[0][0].tokens == plain[0][0].tokens
    assert len(found[0][0].tokens) > 40


def test_constraints_prefixes_and_sampling_match_the_model() -> None:
    model, source = seq2seq(), Packed.of(sources(n=7))
    for beam, constraints in (
        (1, Constraints(no_repeat_ngram=3)), (3, Constraints(no_repeat_ngram=2)),
        (2, Constraints(no_repeat_ngram=1)), (2, Constraints(1.4, 2)), (1, Constraints(1e39)),
        (1, Constraints(forced_bos_token_id=9)), (3, Constraints(1.4, 2, 9)),
    ):  # fmt: skip
        ruled = SearchConfig(beam=beam, max_length=17, constraints=constraints)
        free = search(model, source, SearchConfig(beam=beam, max_length=17))
        assert [found for found, _ in same_answers(model, source, ruled)] != free
    drawn = SampleConfig(max_length=9, seed=4)
    found = sample(model, source, drawn)
    for plain in (nullcontext(), reference()):
        with plain, pytest.raises(UsageError, match="below 37, got 37"):
            search(model, source, SearchConfig(constraints=Constraints(forced_bos_token_id=37)))
    begun = search(model, source, prefixes=[exactly([9, 8])] * 7)
    assert all(answers[0].tokens[:2] == (9, 8) for answers in begun)
    with reference():
        assert found == sample(model, source, drawn)


def test_a_shortest_length_matches_the_model() -> None:
    model, source = seq2seq(), Packed.of(sources(n=7))
    forced = Constraints(forced_bos_token_id=2, min_length=3)  # the end: it goes before the rest
    for (found, *_), _ in same_answers(model, source, SearchConfig(constraints=forced)):
        assert (found.tokens, found.finished) == ((), True)
    model.output.bias.data[2] += 9.0  # answers end at once
    for beam in (1, 3):
        ruled = SearchConfig(beam=beam, max_length=17, constraints=Constraints(min_length=11))
        assert not any(best[0].tokens for best in search(model, source, SearchConfig(beam=beam)))
        for (found, *_), _ in same_answers(model, source, ruled):
            assert found.finished
            assert 11 <= len(found.tokens) < 17


@pytest.mark.parametrize("arithmetic", ["float32", "int8"])
def test_training_of_the_original_does_not_change_the_copy(arithmetic: Any) -> None:
    model, source = seq2seq(positions="learned"), Packed.of(sources())
    engine: Any = compile_model(model, arithmetic)

    def first() -> Any:
        return engine.step(engine.start(source), np.full(17, 1))[0]

    before = first()
    for parameter in model.parameters():
        parameter.data += 0.5  # as the optimizer does, in place
    np.testing.assert_array_equal(first(), before)


def test_compile_model_returns_other_models_unchanged() -> None:
    whole = Seq2Seq(Seq2SeqConfig(V, V, d_model=8, ffn_dim=8), dtype=np.float64)
    assert compile_model(whole) is whole
    model = seq2seq()
    with reference():
        assert compile_model(model) is model


@pytest.mark.parametrize("make", [seq2seq, language])
def test_wrong_tokens_and_long_texts_are_named(make: Any) -> None:
    engine = compile_model(make())
    with pytest.raises(IndexError, match="expected tokens from 0 to 36"):
        engine.start(Packed.of([[5], [V]]))
    with pytest.raises(IndexError, match="expected tokens from 0 to 36"):
        engine.step(engine.start(Packed.of([[5]])), np.array([-1]))
    with pytest.raises(ValueError, match="longer than the model's 43 positions"):
        engine.start(Packed.of([[5] * 44]))


def test_a_text_that_fills_the_positions_leaves_no_room() -> None:
    model = language()
    with pytest.raises(ValueError, match="a text of 43 tokens leaves no room"):
        search(model, Packed.of([[5], [5] * 43]))
    assert search(model, Packed.of([[5] * 42]))[0][0].tokens == ()


@pytest.mark.parametrize("beam", [1, 4])
def test_each_answer_ends_where_its_own_text_leaves_no_room(beam: int) -> None:
    model = language(output_bias=True)
    assert model.output.bias is not None
    model.output.bias.data[2] = -99.0  # no answer ends by itself
    texts = Packed.of([[5] * length for length in (3, 31, 11, 41, 7)])
    found = Engine(model).search(texts, SearchConfig(beam=beam, max_length=29), batch_size=2)
    assert [len(best[0].tokens) for best in found] == [29, 11, 29, 1, 29]  # 42 − length, or 29


def test_no_inputs_no_answers() -> None:
    assert search(compile_model(seq2seq()), Packed.of([])) == []


@pytest.mark.parametrize(
    "settings", [*VARIANTS.values(), *MODERN.values()], ids=[*VARIANTS, *MODERN]
)
def test_compiled_decoding_is_as_close_to_float64_as_the_ops(settings: dict[str, Any]) -> None:
    model = seq2seq(**settings)
    exact = Seq2Seq(model.config, dtype=np.float64).eval()
    exact.load_state_dict({k: v.astype(np.float64) for k, v in model.state_dict().items()})
    source, tokens = Packed.of(sources()), np.full(17, 1)
    models = (exact, model, compile_model(model))
    states, errors = [one.start(source) for one in models], np.zeros(2)
    for step in range(9):
        log_ps = []
        for i, one in enumerate(models):
            with reference():
                log_p, states[i] = one.step(states[i], tokens)
            log_ps.append(log_p[np.isfinite(log_p)])  # other ends have −∞
        worst = [np.abs(log_p - log_ps[0]).max() for log_p in log_ps[1:]]
        errors, tokens = np.maximum(errors, worst), (tokens + step) % V
    plain, ours = errors
    assert ours <= 2 * plain + 2 * np.spacing(np.float32(np.abs(log_ps[0]).max()))


@pytest.mark.parametrize("make", [seq2seq, language])
@pytest.mark.parametrize("max_length", [1, 3])
def test_a_beam_wider_than_the_vocabulary_generates_its_tokens_only(
    make: Any, max_length: int
) -> None:
    few = 7
    of = (
        {"vocab_size": few}
        if make is language
        else dict.fromkeys(("source_vocab_size", "target_vocab_size"), few)
    )
    model, source = make(**of), Packed.of([[5, 6], [3]])
    for beam in (5, 11):
        config = SearchConfig(beam=beam, best=beam, max_length=max_length)
        same_answers(model, source, config)


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (language, {"num_hidden_layers": 0}),
        (seq2seq, {"decoder_layers": 0}),
        (seq2seq, {"encoder_layers": 0, "decoder_layers": 0}),
        (seq2seq, {"encoder_layers": 0, "positions": "rotary_cross"}),
        (seq2seq, {"encoder_layers": 0, "qk_norm": True, "final_norm": False}),
    ],
)
def test_a_model_without_layers_decodes(make: Any, settings: dict[str, Any]) -> None:
    model, source = make(**settings), Packed.of([[5, 6], [], [7]])
    config, drawn = SearchConfig(beam=3, best=3, max_length=5), SampleConfig(max_length=5)
    found, sampled = (
        search(compile_model(model), source, config),
        sample(compile_model(model), source, drawn),
    )
    with reference():
        plain = search(model, source, config)
        assert sample(model, source, drawn) == sampled
    assert [[a.tokens for a in answers] for answers in found] == [
        [a.tokens for a in answers] for answers in plain
    ]


@pytest.mark.parametrize("beam", [1, 4])
def test_of_two_equal_tokens_the_lower_is_generated(beam: int) -> None:
    model = seq2seq(tie_embeddings="none")
    assert model.output.bias is not None
    tokens = model.target.tokens.weight.data
    for array in (model.output.weight.data, model.output.bias.data, tokens):
        array[[4, V - 1]] = array[5]
    model.output.bias.data[[4, 5, V - 1]] += 3.0
    config = SearchConfig(beam=beam, best=beam, max_length=6)
    found = search(compile_model(model), Packed.of(sources()), config)
    firsts = {token for answers in found for token in answers[0].tokens}
    assert 4 in firsts
    assert not {5, V - 1} & firsts


def rounded(model: Any) -> Any:
    """Return the model with its matrices rounded to int8 and back."""
    model.load_state_dict(dequantize(quantize(model.state_dict(), "int8")))
    return model


def round_inputs(x: np.ndarray) -> np.ndarray:
    """Return rows as an int8 product reads them."""
    x = x.reshape(-1, x.shape[-1])
    step = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    return np.asarray(np.rint(x / np.where(step > 0, step, np.float32(1))) * step)


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (language, {}),
        *((seq2seq, VARIANTS[name]) for name in ("article 003", "article 004")),
        (language, MODERN["qwen 3"]),
        (seq2seq, MODERN["alibi"]),
    ],
)
def test_int8_steps_match_the_model_with_rounded_inputs(
    make: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most rows do; where noise of 10⁻⁷ rounds an input to the next integer, a row differs.

    How many do depends on the processor: 0 to 3 of 17 on those measured.
    """
    model = rounded(make(**settings))
    engine, source, tokens = compile_model(model, "int8"), Packed.of(sources()), np.full(17, 1)
    found, _ = engine.step(engine.start(source), tokens)
    with reference():
        unrounded, _ = model.step(model.start(source), tokens)
        monkeypatch.setattr(import_module("pellucid.ops.linear"), "_rows", round_inputs)
        expected, _ = model.step(model.start(source), tokens)
    error, effect = (np.abs(x - expected).max(axis=-1) for x in (found, unrounded))
    assert (error < 1e-5).sum() >= 12
    assert effect.min() > 1e-3


def test_int8_multiplies_the_weights_that_were_stored() -> None:
    model = seq2seq(tie_embeddings="none")
    stored = quantize(model.state_dict(), "int8")
    inputs = compile_model(rounded(model), "int8").packed.target
    np.testing.assert_array_equal(inputs.rounded, stored["target.tokens.weight"])
    scales = stored["target.tokens.weight.int8_scale"].ravel()
    np.testing.assert_allclose(inputs.scales, scales, rtol=2**-23)


@pytest.mark.parametrize("family", [Seq2Seq, CausalLM])
@pytest.mark.parametrize("beam", [1, 3])
def test_compiled_search_keeps_beginnings_as_the_plain_one_does(family: Any, beam: int) -> None:
    sides = ("source_vocab_size", "target_vocab_size") if family is Seq2Seq else ("vocab_size",)
    kind = Seq2SeqConfig if family is Seq2Seq else CausalLMConfig
    model = shaken(family(kind(**dict.fromkeys(sides, V), **SHAPE), seed=2))
    letters = Spelling([b""] * 4 + [bytes(x) for n in (1, 2, 3) for x in product(b"abc", repeat=n)])
    letters = Spelling(letters[:V])
    texts = [b"abcab", b"", b"cb", b"a", b"bca", b"bb", b""]
    prefixes = [Prefix.of_text(t, (letters, letters), {2}) if t else None for t in texts]
    rng = np.random.default_rng(3)
    source = Packed.of([rng.integers(4, V, 3 + i).tolist() for i in range(len(texts))])
    engine = Engine(model)
    rules = Constraints(no_repeat_ngram=2, min_length=5)
    for most, constraints in ((7, Constraints()), (7, rules), (2, Constraints())):  # 2: no more
        config = SearchConfig(beam=beam, best=beam, max_length=most, constraints=constraints)
        found = search(engine, source, config, prefixes)
        plain = [ranked(one.done)[:beam] for one in search_once(engine, source, config, prefixes)]
        free = search(engine, source, config)
        for text, ours, theirs, without in zip(texts, found, plain, free, strict=True):
            assert [(a.tokens, a.finished) for a in ours] == [
                (a.tokens, a.finished) for a in theirs
            ]
            np.testing.assert_allclose([a.log_p for a in ours], [a.log_p for a in theirs], 1e-5)
            assert all(b"".join(letters[i] for i in a.tokens).startswith(text) for a in ours)
            assert text or ours == without


def test_a_place_that_is_free_again_forgets_how_its_answer_began() -> None:
    model = shaken(CausalLM(CausalLMConfig(vocab_size=V, **SHAPE)))
    engine, letters = (
        Engine(model),
        Spelling([b"", b"", b"", b""] + [b"%02d" % i for i in range(33)]),
    )
    begun = [Prefix.of_text(b"%02d%02d" % (i, i + 1), (letters, letters)) for i in (3, 9)]
    source, first = Packed.of([[5, 6], [7, 8, 9]]), np.array([4, 4])
    answering = Answering(engine, SearchConfig(max_length=5), 2)
    free = [one[0].tokens for one in engine.search(source, SearchConfig(max_length=5), first)]
    for prefixes in (begun, [None, begun[1]], [None, None], [begun[0], None]):
        places = answering.join(source, np.array([5, 5]), first, prefixes)
        answering.run()
        for place, prefix, own in zip(places, prefixes, free, strict=True):
            tokens = answering.take(place)[0].tokens
            number = 4 + (3, 9)[begun.index(prefix)] if prefix else 0
            assert tokens == own if prefix is None else tokens[:2] == (number, number + 1)
