"""torch's fused functions against the pages, on tensors of its CPU; the GPU's calls by shape."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from tests.kernels.compare import FUSED, ULP, declined, watching
from tests.ops.libraries import ON_A_GPU, ON_THE_HOST, to
from tests.oracles import installed, oracle

from pellucid import nn, ops
from pellucid.check.cases import OpCase, ruled
from pellucid.check.gradient import listed
from pellucid.check.op_cases import D, H, normal, off_the_kink, op_cases
from pellucid.core import dispatch
from pellucid.core.array import to_host
from pellucid.core.batch import Batch, Packed
from pellucid.core.rng import Rng
from pellucid.core.vjp import Call, Declined
from pellucid.models import MaskedLM, MaskedLMConfig
from pellucid.ops import rules
from pellucid.ops.activations import ACTIVATIONS
from pellucid.optim.adam import adam
from pellucid.optim.model import global_norm

pytestmark = pytest.mark.oracle("torch")
torch = oracle("torch")

CU_Q, CU_K = np.array([0, 3, 8]), np.array([0, 2, 9])
OWN = {"q": normal(8, H, D), "k": normal(8, H, D)[::-1], "v": normal(8, H, D) ** 2}
MORE = [  # what the common table has only with dropout, which the CPU leaves to the page
    OpCase("add_dropout_norm", "no bias", {"x": normal(5, D), "residual": normal(5, D)},
           {"weight": None, "bias": None, "eps": 0.3}),
    OpCase("packed_attention", "causal", OWN, {"cu_q": CU_Q, "cu_k": CU_Q, "rule": rules.causal}),
    OpCase("packed_attention", "cross", {**OWN, "k": normal(9, H, D), "v": normal(9, H, D) ** 2},
           {"cu_q": CU_Q, "cu_k": CU_K, "scale": 0.2}),
    OpCase("packed_attention", "causal, L != S",
           {**OWN, "k": normal(9, H, D), "v": normal(9, H, D) ** 2},
           {"cu_q": CU_Q, "cu_k": CU_K, "rule": rules.causal}),
    OpCase("packed_attention", "one length", OWN,
           {"cu_q": np.array([0, 4, 8]), "cu_k": np.array([0, 4, 8])}),
    *(OpCase("bias_act_dropout", name,
             {"x": off_the_kink(3, 5, 6), "bias": 0.1 * np.tanh(normal(6))}, {"activation": name})
      for name in ACTIVATIONS),
]  # fmt: skip
ALL = [case for case in (*op_cases(), *MORE) if case.op in FUSED]


def arguments(case: OpCase, dtype: Any, library: str = "torch") -> tuple[list[Any], dict[str, Any]]:
    """The case's arguments as a kernel is planned with: positional ones first."""
    given = {name: x.astype(dtype) for name, x in case.arrays.items()} | case.fixed
    if library != "numpy":
        given = {k: v if k in ON_THE_HOST else to(library, v) for k, v in given.items()}
    given = ruled(given)
    parameters = inspect.signature(getattr(ops, case.op)).parameters.values()
    positional = [given.pop(p.name, p.default) for p in parameters if p.kind is not p.KEYWORD_ONLY]
    return positional, given


def test_tensors_have_their_kernels_where_numba_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "AVAILABLE", False)
    x = normal(5, D).astype(np.float32)
    found = [
        dispatch.fused(Call(ops.layer_norm, (a, None, None), {}, "")) for a in (torch.tensor(x), x)
    ]
    assert not isinstance(found[0], Declined)
    assert found[1] == Declined("Numba is not installed")


def on_numpy(case: OpCase, dtype: Any, dy: np.ndarray) -> list[Any]:
    positional, options = arguments(case, dtype, "numpy")
    y, saved = case.pair.forward(*positional, **options)
    return [y, *listed(case.pair.backward(dy.astype(dtype), saved))]


def result_of(op: str, positional: Any, options: Any) -> Any:
    """Return (y, backward) of torch's kernel for an op, or None where it declines."""
    result = dispatch.fused(Call(getattr(ops, op), tuple(positional), options))
    return None if isinstance(result, Declined) else result


def planned(case: OpCase, dtype: Any) -> Any:
    return result_of(case.op, *arguments(case, dtype))


def gradient_for(case: OpCase) -> np.ndarray:
    positional, options = arguments(case, np.float64, "numpy")
    shape = np.shape(case.pair.forward(*positional, **options)[0])
    return np.random.default_rng(3).standard_normal(shape)  # not x itself, whose dx may be zero


def is_fused(case: OpCase) -> bool:
    return installed("torch") and planned(case, np.float64) is not None


FUSED_HERE = [case for case in ALL if is_fused(case)]
ON_A_GPU_ONLY = {"dropout", "packed_attention"}
OWN_KERNELS = frozenset(
    name
    for name in ops.__all__
    if installed("torch") and dispatch.kernel_of(name, "pellucid.kernels.torch")
)
"""The ops that have a kernel for torch's tensors."""


def test_every_fused_page_has_a_case_that_is_fused() -> None:
    """Dropout is drawn as on NumPy's arrays, by the page, unless there is a GPU."""
    assert {case.op for case in FUSED_HERE} == OWN_KERNELS - ON_A_GPU_ONLY


@pytest.mark.parametrize("case", FUSED_HERE, ids=lambda case: case.name)
def test_forward_and_backward_equal_the_page(case: OpCase) -> None:
    dy = gradient_for(case)
    exact = on_numpy(case, np.float64, dy)
    for dtype, plain in ((np.float64, exact), (np.float32, on_numpy(case, np.float32, dy))):
        positional, _ = arguments(case, dtype)
        y, backward = planned(case, dtype)
        found = [y, *listed(backward(to("torch", dy.astype(dtype))))]
        assert not any(x.requires_grad for x in found if x is not None)
        for i, (a, p, b) in enumerate(zip(found, plain, exact, strict=True)):
            assert (a is None) == (b is None)
            if b is None:
                continue
            assert to_host(a).dtype == dtype
            if dtype == np.float64:
                np.testing.assert_allclose(to_host(a), b, rtol=0, atol=1e-10 * np.abs(b).max())
            else:
                allowed = 2 * np.abs(np.asarray(p) - b).max() + 16 * ULP * np.abs(b).max()
                assert np.abs(to_host(a) - b).max() <= allowed, f"result {i}"
        for x, before in zip(positional, arguments(case, dtype)[0], strict=True):
            if isinstance(x, torch.Tensor):
                assert torch.equal(x, before), "an argument was written to"


@pytest.mark.parametrize("case", FUSED_HERE, ids=lambda case: case.name)
def test_bfloat16_is_right_to_its_rounding(case: OpCase) -> None:
    """Eight bits: inputs, results and what is between them are each rounded by up to 2⁻⁹."""
    dy = gradient_for(case)
    positional, options = arguments(case, np.float32)
    narrow = [x.bfloat16() if _is_float(x) else x for x in positional]
    y, backward = result_of(case.op, narrow, options)
    gradient = to("torch", dy.astype(np.float32))
    found = [y, *listed(backward(gradient.to(y.dtype)))]
    for a, b in zip(found, on_numpy(case, np.float64, dy), strict=True):
        if b is not None:
            assert np.abs(to_host(a) - b).max() <= 0.04 * np.abs(b).max()


def _is_float(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


@pytest.mark.parametrize(
    "case", [case for case in ALL if not is_fused(case)], ids=lambda case: case.name
)
def test_what_is_declined_runs_the_page(case: OpCase) -> None:
    dy = gradient_for(case)
    positional, options = arguments(case, np.float64)
    y, backward = dispatch.dispatch(getattr(ops, case.op), *positional, **options)
    found = [y, *listed(backward(to("torch", dy)))]
    for a, b in zip(found, on_numpy(case, np.float64, dy), strict=True):
        if b is not None:
            np.testing.assert_allclose(to_host(a), b, rtol=0, atol=1e-10 * np.abs(b).max())


@pytest.mark.parametrize(
    "call",
    [
        lambda x: (ops.linear, x, x[:, :2]),
        lambda x: (ops.linear, x, x[:, :2].T, x[0]),
        lambda x: (ops.linear, x, x.double()),
        lambda x: (ops.embedding, torch.tensor([9]), x),
        lambda x: (ops.linear_cross_entropy, x, x, None, torch.tensor([1, 1, 9, 0])),
        lambda x: (ops.bias_act_dropout, x, x[0, :2]),
        lambda x: (ops.packed_attention, *[x[:, None]] * 3, np.array([0, 4]), np.array([0, 2, 4])),
    ],
)
def test_arguments_that_do_not_fit_are_the_pages_to_report(call: Any) -> None:
    f, *given = call(torch.ones(4, 3))
    with pytest.raises((ValueError, IndexError, RuntimeError)):
        dispatch.dispatch(f, *given)


def test_inside_a_model_everything_runs_fused() -> None:
    config = MaskedLMConfig(
        vocab_size=53, d_model=24, num_attention_heads=3, ffn_dim=41, masked_share=1.0, dropout=0.0
    )
    text = Packed.of([list(range(3, 29)), [7] * 31])
    model = MaskedLM(config).to(torch.zeros(1))
    with watching() as chosen:
        _, backward = model.loss(Batch(Packed.of([[], []]), text))
    backward(1.0)
    declined = {name for name, fused in chosen.items() if not fused}
    assert declined & OWN_KERNELS == ON_A_GPU_ONLY & chosen.keys()
    assert {"packed_attention", "linear_cross_entropy", "add_dropout_norm"} <= chosen.keys()


@pytest.mark.parametrize("decoupled", [False, True])
def test_the_fused_step_is_adams(decoupled: bool) -> None:
    settings: dict[str, Any] = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.1}
    given = [[normal(5, 7 + i) ** (2 if j == 3 else 1) for j in range(4)] for i in range(2)]
    there = [tuple(to("torch", x) for x in arrays) for arrays in given]
    arrays = ([x[0] for x in there], [x[1] for x in there], [x[2:] for x in there])
    call = Call(adam, arrays, {"step": [3, 8], "decoupled": decoupled, **settings})
    call.arguments["scale"] = 0.5
    assert not isinstance(dispatch.fused(call), Declined)
    for (theta, g, m, v), step, after in zip(given, (3, 8), there, strict=True):
        new, states = adam(theta, 0.5 * g, (m, v), step=step, decoupled=decoupled, **settings)
        for a, b in zip((after[0], *after[2:]), (new, *states), strict=True):
            np.testing.assert_allclose(to_host(a), b, rtol=1e-13, atol=1e-15)
        np.testing.assert_array_equal(to_host(after[1]), g, "the gradient was written to")


def test_the_global_norm_is_summed_in_float64() -> None:
    large = torch.full((3,), 3e30)
    assert not declined(global_norm, [large])
    assert global_norm([large]) == pytest.approx(3**0.5 * float(large[0]), rel=1e-6)
    ones = [torch.ones(4).bfloat16(), torch.ones(5).bfloat16()]
    assert global_norm(ones) == pytest.approx(3.0)


# The masks of a GPU: they are drawn by a generator, which the CPU has too.


def test_a_gpus_mask_is_keyed_by_site_and_part() -> None:
    from pellucid.kernels.torch.draws import keep_mask, masked, seed_of

    x = torch.ones(400, 50)
    rng = Rng(3).at(np.arange(400, dtype=np.uint32))
    mask = keep_mask(x, 0.3, rng)
    assert torch.equal(mask, keep_mask(x, 0.3, rng))
    assert abs(float(mask.float().mean()) - 0.7) < 0.015  # four standard deviations
    others = [rng.fold(1), Rng(4).at(rng.rows), rng.at(rng.rows + np.uint32(1))]
    assert len({seed_of(other) for other in (rng, *others)}) == 4
    for other in others:
        assert abs(float((mask == keep_mask(x, 0.3, other)).float().mean()) - 0.58) < 0.015
    torch.testing.assert_close(masked(x, mask, 0.3), torch.where(mask, 1 / 0.7, 0.0))


# What a GPU is asked for, checked without one: layouts, shapes, dtypes, the order of arguments.


@pytest.mark.parametrize("case", [
    OpCase("packed_attention", "cross", {"q": normal(8, H, 16), "k": normal(9, H, 16),
           "v": normal(9, H, 16) ** 2}, {"cu_q": CU_Q, "cu_k": CU_K, "scale": 0.2}),
], ids=lambda case: case.name)  # fmt: skip
def test_attention_is_laid_out_as_the_gpus_function_takes_it(
    case: OpCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page, on packed rows, in the place of that function."""
    from pellucid.kernels.torch import flash, packed_attention

    def attend(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, causal: bool, *more: Any) -> Any:
        rule, (scale, dropout, rng) = rules.causal if causal else rules.Rule(), more
        given = {"rule": rule, "scale": scale, "dropout": dropout, "rng": rng}
        y, saved = ops.packed_attention(q, k, v, cu_q, cu_k, **given)
        return y, lambda dout: ops.packed_attention_backward(dout, saved)

    monkeypatch.setattr(flash, "_PACKED", ("cpu",))
    monkeypatch.setattr(packed_attention, "attend_packed", attend)
    dy = gradient_for(case)
    y, backward = planned(case, np.float32)
    found = [y, *backward(to("torch", dy.astype(np.float32)))]
    for a, b in zip(found, on_numpy(case, np.float64, dy), strict=True):
        np.testing.assert_allclose(to_host(a), b, rtol=0, atol=2e-5 * np.abs(b).max())


def _fake_backward(
    grad_out_: Any, query: Any, key: Any, value: Any, bias: Any, out: Any, cu_seqlens_q: Any,
    cu_seqlens_k: Any, max_seqlen_q: Any, max_seqlen_k: Any, logsumexp: Any, dropout_p: Any,
    philox_seed: Any, philox_offset: Any, custom_mask_type: Any, bias_requires_grad: Any, *,
    scale: Any,
) -> Any:  # fmt: skip
    assert grad_out_.shape == out.shape == (*query.shape[:3], value.shape[3])
    assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
    assert logsumexp.shape[:2] == (len(cu_seqlens_q) - 1, query.shape[2])
    assert philox_seed.dtype == philox_offset.dtype == torch.int64
    assert isinstance(max_seqlen_q, int)
    assert custom_mask_type in (0, 1)
    assert bias is bias_requires_grad is None or bias_requires_grad is False
    return *(torch.empty_like(x) for x in (query, key, value)), None


def test_the_gpus_attention_backward_is_called_as_its_schema_says() -> None:
    schema = torch.ops.aten._efficient_attention_backward.default._schema
    names = [argument.name for argument in schema.arguments]
    own = list(inspect.signature(_fake_backward).parameters)
    assert own == names[: len(own)]


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_layer_on_a_gpu_asks_for_fused_functions_only(
    dtype: str, activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole decoder layer, causal and with a memory, dropout on, on tensors without numbers."""
    from pellucid.kernels.torch import draws, flash

    class Aten:
        _efficient_attention_backward = staticmethod(_fake_backward)  # torch's own fake is broken

        def __getattr__(self, name: str) -> Any:
            called.append(name)
            return getattr(torch.ops.aten, name)

    def keep(x: Any, p: float, rng: Rng) -> Any:
        return torch.empty(x.shape, dtype=torch.bool, device=x.device)

    class Generator:
        def manual_seed(self, seed: int) -> None:
            assert 0 <= seed < 2**63

    called: list[str] = []
    monkeypatch.setattr(flash, "_aten", Aten())
    monkeypatch.setattr(flash, "_PACKED", ("meta",))
    for module in ("draws", "dropout"):
        monkeypatch.setattr(f"pellucid.kernels.torch.{module}.keep_mask", keep)
    monkeypatch.setattr(torch.cuda, "default_generators", [Generator()])
    monkeypatch.setattr(draws, "keep_mask", keep)
    layer = nn.TransformerDecoderLayer(32, 2, 24, 0.1, activation, batch_first=True)
    kind = getattr(torch, dtype)
    for parameter in layer.parameters():
        parameter.data = torch.empty(parameter.shape, device="meta", dtype=kind)
    x = torch.empty(8, 32, device="meta", dtype=kind)
    memory = nn.Memory(torch.empty(9, 32, device="meta", dtype=kind), CU_K)
    rng = Rng(1).at(np.arange(8, dtype=np.uint32))
    context = nn.Context(cu_seqlens=CU_Q, causal=True, memory=memory, rng=rng)
    with watching() as taken:
        y, backward = layer.run(x, context)
    dx, dmemory = backward(torch.empty_like(y))
    assert all(fused for name, fused in taken.items() if name in OWN_KERNELS)
    assert (y.shape, y.dtype, y.device) == (x.shape, kind, x.device)
    assert (dx.shape, dmemory.shape, dmemory.dtype) == (x.shape, memory.rows.shape, kind)
    for parameter in layer.parameters():
        assert parameter.grad is not None
        assert parameter.grad.shape == parameter.data.shape
    used = "_efficient_attention_forward" if dtype == "float32" else "_flash_attention_forward"
    assert called.count(used) == 2


@pytest.mark.skipif(not ON_A_GPU["torch-cuda"](), reason="needs a GPU: no /dev/nvidiactl here")
@pytest.mark.parametrize("case", [c for c in ALL if "dropout" not in c.name], ids=lambda c: c.name)
def test_on_a_gpu_forward_and_backward_equal_the_page(case: OpCase) -> None:
    """Whatever runs there, fused or not; TF32 is off unless it is asked for."""
    dy = gradient_for(case)
    exact = on_numpy(case, np.float64, dy)
    positional, options = arguments(case, np.float32, "torch-cuda")
    y, backward = dispatch.dispatch(getattr(ops, case.op), *positional, **options)
    found = [y, *listed(backward(to("torch-cuda", dy.astype(np.float32))))]
    for a, b in zip(found, exact, strict=True):
        if b is not None:
            np.testing.assert_allclose(to_host(a), b, rtol=0, atol=2e-5 * np.abs(b).max())


@pytest.mark.skipif(not ON_A_GPU["torch-cuda"](), reason="needs a GPU: no /dev/nvidiactl here")
@pytest.mark.parametrize("dtype", [np.float32, "bfloat16"])
@pytest.mark.parametrize("cu_k, causal", [(CU_Q, True), (CU_Q, False), (CU_K, False), (CU_K, True)])
def test_on_a_gpu_attention_of_an_even_width_equals_the_page(
    dtype: Any, cu_k: np.ndarray, causal: bool
) -> None:
    arrays = {"q": normal(8, H, 16), "k": normal(cu_k[-1], H, 16), "v": normal(cu_k[-1], H, 16)}
    case = OpCase(
        "packed_attention",
        "",
        arrays,
        {"cu_q": CU_Q, "cu_k": cu_k, "rule": rules.causal if causal else rules.Rule()},
    )
    dy = gradient_for(case)
    positional, options = arguments(case, np.float32, "torch-cuda")
    narrow = dtype == "bfloat16"
    positional = [x.bfloat16() if narrow and _is_float(x) else x for x in positional]
    y, backward = result_of("packed_attention", positional, options)
    gradient = to("torch-cuda", dy.astype(np.float32)).to(y.dtype)
    for a, b in zip([y, *backward(gradient)], on_numpy(case, np.float64, dy), strict=True):
        tolerance = (0.04 if narrow else 2e-5) * np.abs(b).max()
        np.testing.assert_allclose(to_host(a), b, rtol=0, atol=tolerance)


@pytest.mark.parametrize("where", ["host", "tensor"])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_of_scaled_dot_product_attention_may_be_tensors(kind: str, where: str) -> None:
    q, mask = normal(2, H, 5, D), normal(5, 5)
    mask = mask < 0.5 if kind == "bool" else mask
    attend = nn.functional.scaled_dot_product_attention
    expected, expected_backward = attend.forward(q, q, q, mask)
    there = to("torch", q)
    found, backward = attend.forward(
        there, there, there, to("torch", mask) if where == "tensor" else mask
    )
    np.testing.assert_allclose(to_host(found), expected, atol=1e-12)
    for a, b in zip(backward(to("torch", q)), expected_backward(q), strict=True):
        np.testing.assert_allclose(to_host(a), b, atol=1e-12)
