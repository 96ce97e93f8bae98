"""Check compiled generation on this machine: its tokens and scores must be those of the layers."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from pellucid.check.result import Result
from pellucid.core import dispatch
from pellucid.core.batch import Packed
from pellucid.core.vjp import Call, observing
from pellucid.core.vjp import Result as Output
from pellucid.generation import SearchConfig, compile_model, search
from pellucid.models import CausalLM, CausalLMConfig, Seq2Seq, Seq2SeqConfig
from pellucid.models.decoding import Constraints
from pellucid.models.quantize import dequantize, quantize

V, N = 37, 17
SHAPE: dict[str, Any] = {
    "d_model": 28, "num_attention_heads": 7, "ffn_dim": 41, "max_position_embeddings": 43,
}  # fmt: skip
MODERN: dict[str, Any] = {
    "norm": "pre", "norm_type": "rms_norm", "activation_function": "swiglu", "linear_bias": False,
    "positions": "rotary", "num_key_value_heads": 1, "head_dim": 6, "qk_norm": True,
    "sliding_window": 5,
}  # fmt: skip
RELATIVE: dict[str, Any] = {
    "norm": "post", "positions": "relative", "activation_function": "geglu_tanh",
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12,
    "attention_softcap": 1.5,
}  # fmt: skip

_ENDS: dict[str, Any] = {"end_token_ids": (5, 7, 11, 13), "suppress_tokens": (9, 17)}
_PAIRS: dict[str, Any] = {**SHAPE, "source_vocab_size": V, "target_vocab_size": V}
MODELS: dict[str, Callable[[], Any]] = {
    "seq2seq, post-norm": lambda: Seq2Seq(Seq2SeqConfig(**_PAIRS, **_ENDS, norm="post"), seed=3),
    "seq2seq, relative positions": lambda: Seq2Seq(Seq2SeqConfig(**_PAIRS, **RELATIVE), seed=3),
    "language model, rotary": lambda: CausalLM(
        CausalLMConfig(**SHAPE, **MODERN, vocab_size=V), seed=3
    ),
}
SEARCHES = {
    "greedy": SearchConfig(max_length=19, length_penalty=3.0),
    "beam 4": SearchConfig(beam=4, best=4, max_length=19),
    "shorter first": SearchConfig(beam=4, best=3, max_length=19, length_penalty=-1.0),
    "constrained": SearchConfig(beam=3, best=3, max_length=19, length_penalty=2.0, constraints=
                                Constraints(1.3, 2, 19, 3)),
}  # fmt: skip


def _moved(model: Any) -> Any:
    """Add noise to the parameters of a model, in place, and return it in evaluation mode."""
    noise = np.random.default_rng(0)
    for parameter in model.parameters():
        moved = parameter.data + 0.1 * noise.standard_normal(parameter.shape)
        parameter.data = moved.astype(np.float32)
    return model.eval()


def check_engine(names: Iterable[str] = tuple(MODELS), steps: bool = True) -> Iterator[Result]:
    """Compare compiled search with the layers, for these models of `MODELS` and all `SEARCHES`.

    Yields a result for each. Its error is the largest relative error of the answers' log p and
    scores, or inf if their tokens differ. With `steps`, also compares one step in int8 with layers
    that round in the same way.
    """
    draw = np.random.default_rng(1)
    source = Packed.of([draw.integers(3, V, n).tolist() for n in draw.integers(0, 23, N)])
    for name in names:
        model = _moved(MODELS[name]())
        engine = compile_model(model)
        if engine is model:
            yield Result("engine", name, 0, 0.0, reason="the layers themselves generate")
            continue
        for kind, config in SEARCHES.items():
            ours = [answer for answers in search(engine, source, config) for answer in answers]
            with dispatch.reference():
                plain = [answer for answers in search(model, source, config) for answer in answers]
            same = [a.tokens for a in ours] == [a.tokens for a in plain]
            found, right = (np.array([(a.log_p, a.score) for a in each]) for each in (ours, plain))
            error = float(np.abs(found / right - 1).max()) if same else np.inf
            yield Result("engine", f"{name}: {kind}", found.size, error, 2e-6)
        if steps:
            yield _int8(name, model, source)


def _int8(name: str, model: Any, source: Packed) -> Result:
    """Compare a step in int8 with layers whose weights and inputs are rounded to int8.

    The weights of `model` are rounded in place. An input near the middle between two integers may
    be rounded differently, because the two computations differ by 1e-7; then its row differs. So
    the error is the share of rows that do.
    """
    model.load_state_dict(dequantize(quantize(model.state_dict(), "int8")))
    engine, tokens = compile_model(model, "int8"), np.full(N, 1)
    found, _ = engine.step(engine.start(source), tokens)
    with dispatch.reference(), observing(_rounding):
        expected, _ = model.step(model.start(source), tokens)
    differs = ~np.isclose(found, expected, 0, 1e-5).all(axis=-1)
    return Result("engine", f"{name}: int8", found.size, float(differs.mean()), 0.3)


def _rounding(call: Call, run: Callable[[Call], Output]) -> Output:
    """Round the input rows of `linear` as an int8 product does; an observer."""
    if call.op.__name__ == "linear":
        x = call.arguments["x"]
        step = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
        call.arguments["x"] = np.rint(x / np.where(step > 0, step, np.float32(1))) * step
    return run(call)
