"""Every row of the table of differences: our rule, and what torch does instead."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid import nn
from pellucid.nn import functional
from pellucid.nn.differences import page, rule, table

E, H, L, S, N = 6, 2, 5, 7, 3
Rule = Callable[[], None]
OURS: dict[str, Rule] = {}
TORCHS: dict[str, Callable[[Any], None]] = {}
generator = np.random.default_rng(0)


def ours(name: str) -> Callable[[Rule], Rule]:
    def enrol(f: Rule) -> Rule:
        OURS[name] = f
        return f

    return enrol


def torchs(name: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    def enrol(f: Callable[[Any], None]) -> Callable[[Any], None]:
        TORCHS[name] = f
        return f

    return enrol


def array(*shape: int) -> np.ndarray:
    return generator.standard_normal(shape)


def attention(**arguments: Any) -> nn.MultiheadAttention:
    mha = nn.MultiheadAttention(E, H, batch_first=True, dtype=np.float64, **arguments)
    for parameter in mha.parameters():
        parameter.data = array(*parameter.shape)
    return mha


@ours("dead query")
def dead_query() -> None:
    mha, x, memory = attention(), array(N, L, E), array(N, S, E)
    mask = np.zeros((L, S), bool)
    mask[2] = True
    for dead in (mask, np.where(mask, -np.inf, 0.0)):
        (y, weights), backward = mha.forward(x, memory, memory, attn_mask=dead)
        dy = np.zeros_like(y)
        dy[:, 2] = 1.0
        np.testing.assert_array_equal(y[:, 2], np.broadcast_to(mha.out_proj.bias.data, (N, E)))
        assert not weights[:, 2].any()
        for gradient in backward(dy):
            assert not gradient.any()
    large = mha(x, memory, memory, attn_mask=np.where(mask, -1e30, 0.0))[1]
    np.testing.assert_allclose(large[:, 2].sum(-1), 1.0)


@torchs("dead query")
def dead_query_in_torch(torch: Any) -> None:
    mha, x = torch.nn.MultiheadAttention(E, H), torch.ones(L, N, E)
    dead = torch.ones(L, L, dtype=torch.bool)
    assert mha(x, x, x, attn_mask=dead)[0].isnan().all()
    assert not mha(x, x, x, attn_mask=dead, need_weights=False)[0].isnan().any()


@ours("causal alone")
def causal_alone() -> None:
    mha, x = attention(), array(N, L, E)
    alone = mha(x, x, x, is_causal=True)[1]
    mask = nn.generate_square_subsequent_mask(L)
    np.testing.assert_array_equal(alone, mha(x, x, x, attn_mask=mask)[1])
    assert not alone[:, 0, 1:].any()


@torchs("causal alone")
def causal_alone_in_torch(torch: Any) -> None:
    x = torch.ones(L, N, E)
    with pytest.raises(RuntimeError, match="Need attn_mask"):
        torch.nn.MultiheadAttention(E, H)(x, x, x, is_causal=True)


@ours("causal with a mask")
def causal_with_a_mask() -> None:
    mha, x = attention(), array(N, L, E)
    mask = np.zeros((L, L), bool)
    mask[3, 1] = True
    for need_weights in (False, True):
        told = mha(x, x, x, attn_mask=mask, is_causal=True, need_weights=need_weights)[0]
        both = mask | np.triu(np.ones((L, L), bool), 1)
        np.testing.assert_allclose(told, mha(x, x, x, attn_mask=both)[0], rtol=1e-12)
    y = functional.scaled_dot_product_attention(x, x, x, ~mask, is_causal=True)
    np.testing.assert_allclose(y, functional.scaled_dot_product_attention(x, x, x, ~both))


@torchs("causal with a mask")
def causal_with_a_mask_in_torch(torch: Any) -> None:
    mha, x = torch.nn.MultiheadAttention(E, H), torch.randn(L, N, E)
    mask = torch.zeros(L, L, dtype=torch.bool)
    mask[3, 1] = True
    roads = [mha(x, x, x, attn_mask=mask, is_causal=True, need_weights=w)[0] for w in (False, True)]
    assert not torch.allclose(*roads)
    with pytest.raises(RuntimeError, match="attn_mask should not be set"):
        torch.nn.functional.scaled_dot_product_attention(x, x, x, mask, is_causal=True)


@ours("causal with learnt keys")
def causal_with_learnt_keys() -> None:
    mha, x = attention(add_bias_kv=True, add_zero_attn=True), array(N, L, E)
    weights = mha(x, x, x, is_causal=True)[1]
    assert weights.shape == (N, L, L + 2)
    assert (weights[..., L:] > 0).all()
    assert not weights[:, 0, 1:L].any()


@torchs("causal with learnt keys")
def causal_with_learnt_keys_in_torch(torch: Any) -> None:
    mha, x = torch.nn.MultiheadAttention(E, H, add_bias_kv=True), torch.randn(L, N, E)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(L)
    hinted = mha(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]
    assert not torch.allclose(hinted, mha(x, x, x, attn_mask=mask)[0])


@ours("scale of 0 or less")
def scale_of_0_or_less() -> None:
    x = array(N, L, E)
    earlier = np.tril(np.ones((L, L), bool))
    for scale in (0.0, -0.5):
        causal = functional.scaled_dot_product_attention(x, x, x, is_causal=True, scale=scale)
        masked = functional.scaled_dot_product_attention(x, x, x, earlier, scale=scale)
        np.testing.assert_array_equal(causal, masked)
        assert np.isfinite(causal).all()


@torchs("scale of 0 or less")
def scale_of_0_or_less_in_torch(torch: Any) -> None:
    x = torch.randn(N, H, L, E)
    y = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True, scale=-0.5)
    assert y.isnan().any()


def far_below_0(ones: Callable[..., Any]) -> tuple[Any, Any]:
    """Return a mask that takes a lot from every score, and dv: the weights are 1 / L each."""
    return -1e9 * ones(L, L), ones(L, E)


@ours("large negative mask on every key")
def large_negative_mask_on_every_key() -> None:
    mask, dv = far_below_0(lambda *shape: np.ones(shape, np.float32))
    x = array(L, E).astype(np.float32)
    for path in (contextlib.nullcontext, pellucid.reference):
        with path():
            _, backward = functional.scaled_dot_product_attention.forward(x, x, x, mask)
            np.testing.assert_allclose(backward(np.ones_like(x))[2], dv, rtol=1e-6)


@torchs("large negative mask on every key")
def large_negative_mask_on_every_key_in_torch(torch: Any) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    mask, dv = far_below_0(torch.ones)
    for backend, times in ((SDPBackend.FLASH_ATTENTION, L), (SDPBackend.MATH, 1)):
        q, v = torch.randn(1, 1, L, E), torch.randn(1, 1, L, E, requires_grad=True)
        with sdpa_kernel(backend):
            y = torch.nn.functional.scaled_dot_product_attention(q, q, v, mask)
        y.backward(torch.ones_like(y))
        torch.testing.assert_close(v.grad[0, 0], times * dv)


@ours("mask dtype")
def mask_dtype() -> None:
    mha = attention()
    x = array(N, L, E)
    added = array(L, L).astype(np.float32)
    padding = np.arange(L) >= np.array([[2], [5], [4]])
    mixed = mha(x, x, x, key_padding_mask=padding, attn_mask=added)[1]
    floats = mha(
        x, x, x, key_padding_mask=np.where(padding, -np.inf, 0.0), attn_mask=added.astype(float)
    )[1]
    np.testing.assert_allclose(mixed, floats, rtol=1e-12)
    single = nn.MultiheadAttention(E, H, batch_first=True)
    y = single(*[x.astype(np.float32)] * 3, attn_mask=added.astype(np.float64))[0]
    assert y.dtype == np.float32


@torchs("mask dtype")
def mask_dtype_in_torch(torch: Any) -> None:
    mha, x = torch.nn.MultiheadAttention(E, H), torch.ones(L, N, E)
    with pytest.raises(RuntimeError, match="dtype"):
        mha(x, x, x, attn_mask=torch.zeros(L, L, dtype=torch.float64))


@ours("mask gradient")
def mask_gradient() -> None:
    mha, x, mask = attention(), array(N, L, E), array(L, L)
    with nn.Recorder() as recorder:
        (y, _), backward = mha.forward(x, x, x, attn_mask=mask)
    dy = array(*y.shape)
    backward(dy)
    dscores = recorder.maps[""].dscores
    assert dscores is not None
    h = 1e-6
    moved = mask.copy()
    moved[3, 1] += h
    difference = (mha(x, x, x, attn_mask=moved)[0] - y) / h
    np.testing.assert_allclose(dscores.sum((0, 1))[3, 1], (difference * dy).sum(), rtol=1e-4)


@torchs("mask gradient")
def mask_gradient_in_torch(torch: Any) -> None:
    mha, x = torch.nn.MultiheadAttention(E, H), torch.randn(L, N, E)
    mask = torch.zeros(L, L, requires_grad=True)
    mha(x, x, x, attn_mask=mask)[0].square().sum().backward()
    assert mask.grad.any()


@ours("backward")
def single_use() -> None:
    layer, x = nn.Linear(E, L, dtype=np.float64), array(N, E)
    y, backward = layer.forward(x)
    np.testing.assert_array_equal(layer(x), y)
    assert backward(np.ones_like(y)).shape == x.shape
    once = layer.weight.grad.copy()
    with pytest.raises(RuntimeError, match="used once"):
        backward(np.ones_like(y))
    layer.forward(x)[1](np.ones_like(y))
    np.testing.assert_array_equal(layer.weight.grad, 2 * once)


@ours("randomness")
def randomness() -> None:
    layer = nn.TransformerEncoderLayer(E, H, 11, batch_first=True)
    x = array(N, L, E).astype(np.float32)
    with pytest.raises(ValueError, match="Nothing reads global state"):
        layer(x)
    seeded = pellucid.Rng(3)
    np.random.seed(0)  # noqa: NPY002 - to show that it changes nothing
    first = layer(x, rng=seeded)
    np.testing.assert_array_equal(first, layer(x, rng=seeded))
    assert not np.array_equal(first, layer(x, rng=pellucid.Rng(4)))
    # an example keeps its bits whoever stands beside it
    np.testing.assert_allclose(layer(x[:1], rng=seeded), first[:1], rtol=1e-5, atol=1e-6)


@torchs("randomness")
def first_values_follow_torchs_distributions(torch: Any) -> None:
    for build in (
        lambda lib: lib.Transformer(48, 4, 1, 1, 96, batch_first=True),
        lambda lib: lib.TransformerDecoderLayer(48, 4, 96),
        lambda lib: lib.MultiheadAttention(48, 4, add_bias_kv=True, kdim=24),
        lambda lib: lib.Embedding(97, 48, padding_idx=0),
    ):
        theirs = build(torch.nn).state_dict()
        for name, mine in build(nn).state_dict().items():
            other = theirs[name].numpy()
            spread = other.std()
            if spread == 0 or mine.size < 90:
                if spread == 0:
                    np.testing.assert_array_equal(mine, other)
                continue
            assert abs(mine.std() / spread - 1) < 0.2, name
            assert abs(mine.mean() - other.mean()) < spread / 2, name
            if "bias_" not in name and "weight" in name and name != "weight":  # all uniform
                assert abs(np.abs(mine).max() / np.abs(other).max() - 1) < 0.05, name


@ours("activation")
def activation() -> None:
    x = array(N, L, E)

    def layer(given: Any) -> Any:
        return nn.TransformerEncoderLayer(E, H, 11, 0.0, given, dtype=np.float64)(x)

    with pytest.raises(TypeError, match="needs a derivative"):
        layer(np.tanh)
    with pytest.raises(ValueError, match="got 'tanh'"):
        layer("tanh")
    by_pair = pellucid.pair(pellucid.ops.silu, pellucid.ops.silu_backward)
    for same in (
        ("silu", functional.silu, nn.SiLU(), by_pair),
        ("gelu_tanh", nn.GELU("tanh")),
        ("leaky_relu", functional.leaky_relu, nn.LeakyReLU()),
    ):
        for given in same[1:]:
            np.testing.assert_allclose(layer(given), layer(same[0]), rtol=1e-12)


@ours("activation module in a decoder")
def activation_module_in_a_decoder() -> None:
    x = array(N, L, E)
    built = [
        nn.Transformer(E, H, 1, 1, 11, 0.0, given, dtype=np.float64)
        for given in (nn.GELU(), "gelu")
    ]
    np.testing.assert_allclose(built[0](x, x), built[1](x, x), rtol=1e-12)


@torchs("activation module in a decoder")
def activation_module_in_a_decoder_in_torch(torch: Any) -> None:
    layer = torch.nn.TransformerDecoderLayer(E, H, 11, activation=torch.nn.GELU())
    copied = torch.nn.TransformerDecoder(layer, 1).layers[0]
    assert copied.activation is torch.nn.functional.relu


@ours("inplace")
def inplace() -> None:
    refused: list[Callable[[], Any]] = [
        lambda: nn.Dropout(inplace=True),
        lambda: nn.ReLU(inplace=True),
        lambda: nn.LeakyReLU(inplace=True),
        lambda: nn.SiLU(inplace=True),
        lambda: functional.relu(array(3), inplace=True),
        lambda: functional.leaky_relu(array(3), inplace=True),
        lambda: functional.silu(array(3), inplace=True),
        lambda: functional.dropout(array(3), inplace=True),
    ]
    for call in refused:
        with pytest.raises(ValueError, match=rule("inplace")):
            call()


@ours("results that backward reads")
def results_that_are_read_again() -> None:
    x = array(L, E)
    y, _ = functional.softmax.forward(x, -1)
    with pytest.raises(ValueError, match="read-only"):
        y += 1
    free = functional.softmax(x, -1)
    free += 1
    (_, weights), _ = attention().forward(*[array(N, L, E)] * 3, average_attn_weights=False)
    with pytest.raises(ValueError, match="read-only"):
        weights += 1


@torchs("results that backward reads")
def results_that_are_read_again_in_torch(torch: Any) -> None:
    y = torch.softmax(torch.ones(L, E, requires_grad=True), -1)
    y += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@ours("max_norm")
def max_norm() -> None:
    with pytest.raises(ValueError, match=rule("max_norm")):
        nn.Embedding(5, 3, max_norm=1.0)
    with pytest.raises(ValueError, match=rule("max_norm")):
        functional.embedding(np.array([1]), array(5, 3), max_norm=1.0)


@ours("sparse")
def sparse() -> None:
    grads = []
    for chosen in (False, True):
        layer = nn.Embedding(5, 3, sparse=chosen)
        y, backward = layer.forward(np.array([1, 1, 4]))
        backward(np.ones_like(y))
        grads.append(layer.weight.grad)
    assert isinstance(grads[1], np.ndarray)
    np.testing.assert_array_equal(*grads)


@ours("code paths")
def roads() -> None:
    layer = nn.TransformerEncoderLayer(E, H, 11, batch_first=True)
    x = array(N, L, E).astype(np.float32)
    padding = np.arange(L) >= np.array([[2], [5], [4]])
    results = [
        nn.TransformerEncoder(layer, 1, None, nested, check).eval()(x, None, padding)
        for nested in (False, True)
        for check in (False, True)
    ]
    for result in results:
        np.testing.assert_array_equal(result, results[0])
    assert results[0][0, 3].any()  # padding is computed on, not zeroed


@torchs("code paths")
def roads_in_torch(torch: Any) -> None:
    layer = torch.nn.TransformerEncoderLayer(E, H, 11, batch_first=True)
    stack = torch.nn.TransformerEncoder(layer, 1).eval()
    padding = torch.arange(L) >= torch.tensor([[2], [5], [4]])
    was = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(True)
    try:
        with torch.no_grad(), pytest.warns(UserWarning, match="nested tensors"):
            y = stack(torch.randn(N, L, E), src_key_padding_mask=padding)
    finally:
        torch.backends.mha.set_fastpath_enabled(was)
    assert not y[0, 3].any()


@ours("device")
def device() -> None:
    with pytest.raises(TypeError, match="device"):
        nn.Linear(3, 5, device="cpu")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        nn.Linear(3, 5, True, np.float64)  # type: ignore[misc]
    assert nn.Linear(3, 5).weight.data.dtype == np.float32
    assert nn.Linear(3, 5, dtype=np.float64).weight.data.dtype == np.float64


@ours("float16")
def float16() -> None:
    half, single, table = (array(L, E).astype(d) for d in ("float16", "float32", "float16"))
    tokens, mha = np.arange(L), nn.MultiheadAttention(E, H)
    refused: list[Callable[[], Any]] = [
        lambda: nn.Linear(E, L, dtype=np.float16),
        lambda: nn.LayerNorm(E, dtype="float16"),
        lambda: nn.Embedding(L, E, _weight=table),
        lambda: nn.Transformer(E, H, 1, 1, 11, dtype=np.float16),
        lambda: nn.Linear(E, L)(half),
        lambda: mha(half, half, half),
        lambda: nn.Dropout(0.3)(half, rng=pellucid.Rng(0)),
        lambda: functional.linear(single, table),
        lambda: functional.embedding(tokens, table),
        lambda: functional.cross_entropy(half, tokens),
        lambda: functional.layer_norm(half, (E,)),
        lambda: functional.scaled_dot_product_attention(half, half, half),
    ]
    alone = (functional.relu, functional.gelu, functional.silu, functional.leaky_relu)
    refused += [lambda f=f: f(half) for f in alone]  # type: ignore[misc]
    refused += [lambda: functional.softmax(half, 0), lambda: functional.log_softmax(half, -1)]
    for call in refused:
        with pytest.raises(TypeError, match=rule("float16")):
            call()
    layer = nn.Linear(E, L)
    layer.load_state_dict({"weight": table}, strict=False)
    assert layer.weight.data.dtype == np.float32


@torchs("float16")
def float16_in_torch(torch: Any) -> None:
    y = torch.nn.Linear(E, L, dtype=torch.float16)(torch.ones(N, E, dtype=torch.float16))
    assert y.dtype == torch.float16


@ours("nothing to mask")
def nothing_to_mask() -> None:
    mha = attention()
    none = array(0, L, E)
    y, weights = mha(none, none, none, key_padding_mask=np.zeros((0, L), bool))
    assert y.shape == (0, L, E)
    assert weights.shape == (0, L, L)
    x, no_keys = array(N, L, E), array(N, 0, E)
    padding = np.zeros((N, 0), bool)
    (y, weights), backward = mha.forward(x, no_keys, no_keys, key_padding_mask=padding)
    np.testing.assert_array_equal(y, np.broadcast_to(mha.out_proj.bias.data, y.shape))
    assert weights.shape == (N, L, 0)
    assert [d.shape for d in backward(np.ones_like(y))] == [x.shape, no_keys.shape, no_keys.shape]


@torchs("nothing to mask")
def nothing_to_mask_in_torch(torch: Any) -> None:
    mha, none = torch.nn.MultiheadAttention(E, H), torch.ones(L, 0, E)
    padding = torch.zeros(0, L, dtype=torch.bool)
    with pytest.raises(RuntimeError, match="reshape"):
        mha(none, none, none, key_padding_mask=padding, need_weights=False)


@ours("no layers")
def no_layers() -> None:
    model = nn.Transformer(E, H, 0, 0, 11, dtype=np.float64, bias=False)
    src, tgt = array(S, N, E), array(L, N, E)
    y, backward = model.forward(src, tgt)
    np.testing.assert_array_equal(y, nn.LayerNorm(E, dtype=np.float64)(tgt))
    dsrc, dtgt = backward(array(*y.shape))
    assert not dsrc.any()
    assert dtgt.any()
    layer = nn.TransformerDecoderLayer(E, H, 11, dtype=np.float64)
    _, backward = nn.TransformerDecoder(layer, 0).forward(tgt, src)
    _, dmemory = backward(array(*tgt.shape))
    np.testing.assert_array_equal(dmemory, np.zeros_like(src))


@torchs("no layers")
def no_layers_in_torch(torch: Any) -> None:
    with pytest.raises(IndexError):
        torch.nn.Transformer(E, H, 0, 1, 11, batch_first=True)(
            torch.ones(N, S, E), torch.ones(N, L, E)
        )


@ours("custom parts")
def custom_parts() -> None:
    encoder = nn.Linear(E, E, dtype=np.float64)
    bias = encoder.bias.data.copy()

    class Encoder(nn.Module):
        def __init__(self) -> None:
            self.mix = encoder

        def forward(self, src: Any, mask: Any, src_key_padding_mask: Any, is_causal: Any) -> Any:
            return self.mix.forward(src)

    model = nn.Transformer(E, H, 1, 1, 11, 0.0, custom_encoder=Encoder(), dtype=np.float64)
    np.testing.assert_array_equal(encoder.bias.data, bias)  # torch too draws only matrices anew
    y, backward = model.forward(array(S, N, E), array(L, N, E))
    dsrc, _ = backward(array(*y.shape))
    assert dsrc.shape == (S, N, E)
    assert encoder.weight.grad.any()
    with pytest.raises(TypeError, match="Module whose forward returns"):
        nn.Transformer(E, H, custom_encoder=lambda src, **masks: src)  # type: ignore[arg-type]


@ours("infinite input")
def infinite_input() -> None:
    x = np.array([-np.inf, np.inf])
    for layer in (nn.GELU(), nn.GELU("tanh"), nn.SiLU()):
        y, backward = layer.forward(x)
        np.testing.assert_array_equal(y, [0.0, np.inf])
        np.testing.assert_allclose(backward(np.ones(2)), [0.0, 1.0], atol=1e-100)


@torchs("infinite input")
def infinite_input_in_torch(torch: Any) -> None:
    assert torch.nn.functional.gelu(torch.tensor([-torch.inf])).isnan().all()


@ours("not a number")
def not_a_number() -> None:
    for dtype in (np.float32, np.float64):
        x = np.full((N, 101), np.nan, dtype)
        y = functional.dropout(x, 0.3, rng=pellucid.Rng(0))
        assert not y[~np.isnan(y)].any()
        assert 0.1 < (y == 0).mean() < 0.5
        z, backward = functional.relu.forward(x)
        assert np.isnan(z).all()
        assert not backward(np.ones_like(x)).any()
        middle, saved = pellucid.ops.bias_act_dropout(x, None)
        assert not pellucid.ops.bias_act_dropout_backward(middle, saved)[0].any()


@torchs("not a number")
def not_a_number_in_torch(torch: Any) -> None:
    x = torch.full((N, 101), torch.nan, requires_grad=True)
    assert torch.nn.functional.dropout(x, 0.3).isnan().all()
    torch.relu(x).sum().backward()
    assert (x.grad == 1).all()


@ours("complex numbers")
def complex_numbers() -> None:
    x = np.ones((N, E), np.complex64)
    for call in (
        lambda: nn.Linear(E, L, dtype=np.complex64),
        lambda: nn.Dropout(0.0)(x),
        lambda: functional.silu(x),
    ):
        with pytest.raises(TypeError, match="float32 or float64, got complex64"):
            call()


@torchs("complex numbers")
def complex_numbers_in_torch(torch: Any) -> None:
    x = torch.ones((N, E), dtype=torch.complex64)
    for layer in (torch.nn.Linear(E, L, dtype=x.dtype), torch.nn.Dropout(0.0), torch.nn.SiLU()):
        assert layer(x).dtype == x.dtype


@ours("epsilon")
def epsilon() -> None:
    for eps in (-1e-5, float("nan")):
        with pytest.raises(ValueError, match="eps must be at least 0"):
            nn.LayerNorm(E, eps)


@torchs("epsilon")
def epsilon_in_torch(torch: Any) -> None:
    assert torch.nn.LayerNorm(E, eps=-1.0)(torch.ones(N, E)).isnan().all()


@ours("factors")
def factors() -> None:
    for value in (float("nan"), float("inf"), 1e30):
        with pytest.raises(ValueError, match="negative_slope must be"):
            nn.LeakyReLU(value)
        with pytest.raises(ValueError, match="scale must be"):
            functional.scaled_dot_product_attention(*[array(L, E)] * 3, scale=value)


@torchs("factors")
def factors_in_torch(torch: Any) -> None:
    assert torch.nn.LeakyReLU(float("nan"))(-torch.ones(N)).isnan().all()
    q = torch.ones(1, L, E)
    assert (
        torch.nn.functional.scaled_dot_product_attention(q, q, q, scale=float("nan")).isnan().all()
    )


@ours("walking modules")
def walking_modules() -> None:
    one = nn.ReLU()
    twice = nn.ModuleList([one, one])
    assert [name for name, _ in twice.named_modules()] == ["", "0", "1"]
    assert list(twice.modules()) == [twice, one]
    layer = nn.Linear(E, L)
    layer.weight.requires_grad = False
    y, backward = layer.forward(array(N, E))
    backward(y)
    assert layer.weight.grad is None
    for name in ("children", "apply", "requires_grad_", "float", "register_buffer"):
        assert not hasattr(layer, name)


@torchs("walking modules")
def walking_modules_in_torch(torch: Any) -> None:
    one = torch.nn.ReLU()
    twice = torch.nn.ModuleList([one, one])
    assert [name for name, _ in twice.named_modules()] == ["", "0"]
    assert list(twice.modules()) == [twice, one]
    assert torch.nn.Parameter(torch.ones(E)).shape == (E,)


@ours("subclasses")
def subclasses() -> None:
    class Low(nn.Linear):
        def forward(self, input: Any) -> Any:
            raise AssertionError("called")

    class Never(nn.Dropout):
        def forward(self, input: Any, *, rng: Any = None) -> Any:
            raise AssertionError("called")

    class Layer(nn.TransformerEncoderLayer):
        def forward(self, *inputs: Any, **options: Any) -> Any:
            y, backward = super().forward(*inputs, **options)
            return -y, lambda dy: backward(-dy)

    own, x = Layer(E, H, 11, 0.0), array(L, N, E)
    np.testing.assert_array_equal(own(x), -nn.TransformerEncoderLayer(E, H, 11, 0.0)(x))
    with pytest.raises(TypeError, match=r"layers\.0 is a Layer, whose forward would not be called"):
        nn.TransformerEncoder(own, 2)(x)
    layer = nn.TransformerEncoderLayer(E, H, 11, 0.0)
    layer.linear1 = Low(E, 11)
    with pytest.raises(TypeError, match=r"linear1 is a Low, .* compute on rows"):
        layer(x)
    layer = nn.TransformerEncoderLayer(E, H, 11, 0.0)
    layer.dropout1 = Never()
    with pytest.raises(TypeError, match="dropout1 is a Never"):
        layer(x)

    class Last(nn.LayerNorm):
        def forward(self, input: Any) -> Any:
            return nn.functional.relu.forward(input)

    plain = nn.TransformerEncoderLayer(E, H, 11, 0.0)
    assert nn.TransformerEncoder(plain, 1, Last(E))(x).min() == 0.0  # its forward is called


@torchs("subclasses")
def subclasses_in_torch(torch: Any) -> None:
    class Layer(torch.nn.TransformerEncoderLayer):  # type: ignore[misc]
        def forward(self, src: Any, *rest: Any, **options: Any) -> Any:
            return -src

    x = torch.randn(L, N, E)
    assert torch.equal(torch.nn.TransformerEncoder(Layer(E, H, 11), 1, None, False)(x), -x)


@ours("row of -inf")
def row_of_minus_inf() -> None:
    x = np.array([[-np.inf, -np.inf], [0.0, 0.0]])
    np.testing.assert_array_equal(functional.softmax(x, -1), [[0.0, 0.0], [0.5, 0.5]])
    np.testing.assert_array_equal(functional.log_softmax(x, -1)[0], x[0])


@torchs("row of -inf")
def row_of_minus_inf_in_torch(torch: Any) -> None:
    x = torch.full((1, 2), -torch.inf)
    assert torch.softmax(x, -1).isnan().all()
    assert torch.log_softmax(x, -1).isnan().all()


@ours("mixed dtypes")
def mixed_dtypes() -> None:
    layer, x = nn.Linear(E, L), array(N, E)
    assert layer(x).dtype == np.float64
    whole = np.arange(E)[None]
    for f in (layer, nn.LayerNorm(E), functional.gelu, lambda x: functional.softmax(x, 0)):
        np.testing.assert_array_equal(f(whole), f(whole.astype(np.float64)), strict=True)
    with pytest.raises(TypeError, match="float32 or float64, got int64"):
        functional.scaled_dot_product_attention(*[np.ones((L, E), np.int64)] * 3)


@torchs("mixed dtypes")
def mixed_dtypes_in_torch(torch: Any) -> None:
    for call in (
        lambda: torch.nn.Linear(E, L)(torch.ones(N, E, dtype=torch.float64)),
        lambda: torch.nn.Linear(E, L)(torch.ones(N, E, dtype=torch.int64)),
        lambda: torch.nn.functional.gelu(torch.ones(E, dtype=torch.int64)),
        lambda: torch.softmax(torch.ones(E, dtype=torch.int64), 0),
    ):
        with pytest.raises(RuntimeError, match=r"dtype|not implemented|Long"):
            call()
    assert torch.relu(torch.ones(E, dtype=torch.int64)).dtype == torch.int64


@ours("broadcast bias")
def broadcast_bias() -> None:
    for shape in ((1,), (N, 1), (N, L), ()):
        with pytest.raises(ValueError, match=r"bias of shape \(5,\)"):
            functional.linear(array(N, E), array(L, E), array(*shape))


@torchs("broadcast bias")
def broadcast_bias_in_torch(torch: Any) -> None:
    x, weight = torch.ones(N, E), torch.ones(L, E)
    for shape in ((1,), (N, 1), (N, L)):
        assert torch.nn.functional.linear(x, weight, torch.ones(shape)).shape == (N, L)


@ours("class numbers")
def class_numbers() -> None:
    x, target = array(N, L).astype(np.float32), np.array([0, 4, 1])
    loss = nn.CrossEntropyLoss(np.ones(L))  # float64 weights on float32 input
    values = [loss(x, target.astype(d)) for d in ("int8", "uint16", "int32", "int64")]
    assert {v.dtype for v in values} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(values, values[0])


@torchs("class numbers")
def class_numbers_in_torch(torch: Any) -> None:
    with pytest.raises(RuntimeError, match="Long or Byte"):
        torch.nn.CrossEntropyLoss()(torch.ones(3, 5), torch.zeros(3, dtype=torch.int32))


@ours("nothing to average")
def nothing_to_average() -> None:
    for weight, target in ((np.zeros(L), np.zeros(N, int)), (np.ones(L), np.full(N, -100))):
        loss, backward = nn.CrossEntropyLoss(weight).forward(array(N, L), target)
        assert np.isnan(loss)
        assert not backward().any()


@torchs("nothing to average")
def nothing_to_average_in_torch(torch: Any) -> None:
    x, target = torch.randn(N, L, requires_grad=True), torch.zeros(N, dtype=torch.int64)
    torch.nn.CrossEntropyLoss(torch.zeros(L))(x, target).backward()
    assert x.grad.isnan().any()


@ours("target gradient")
def target_gradient() -> None:
    x = array(N, L)
    _, backward = nn.CrossEntropyLoss().forward(x, np.full((N, L), 1 / L))
    gradient = backward()
    assert isinstance(gradient, np.ndarray)
    assert gradient.shape == x.shape


@torchs("target gradient")
def target_gradient_in_torch(torch: Any) -> None:
    target = torch.full((N, L), 1 / L, requires_grad=True)
    torch.nn.CrossEntropyLoss()(torch.randn(N, L), target).backward()
    assert target.grad.any()


@ours("errors")
def errors() -> None:
    x = array(N, L, E)
    mha = attention()
    with pytest.raises(ValueError, match=r"\(L, S\) = \(5, 5\)"):
        mha(x, x, x, attn_mask=np.zeros((L, S), bool))
    with pytest.raises(TypeError, match="astype"):
        mha(x, x, x, attn_mask=np.zeros((L, L), int))
    with pytest.raises(IndexError):
        nn.Embedding(5, 3)(np.array([5]))
    with pytest.raises(KeyError) as caught:
        mha.load_state_dict({})
    assert isinstance(caught.value, nn.StateError)


@pytest.mark.parametrize("name", table())
def test_our_rule(name: str) -> None:
    OURS[name]()


@pytest.mark.oracle("torch")
@pytest.mark.parametrize("name", TORCHS)
def test_torch_still_differs(name: str) -> None:
    import torch

    TORCHS[name](torch)


def test_the_page_is_the_table() -> None:
    docs = Path(__file__).parents[2] / "docs" / "differences.md"
    assert docs.read_text(encoding="utf-8") == page(), "run scripts/differences.py"


def test_every_rule_has_one_row() -> None:
    assert sorted(OURS) == sorted(table())
