"""To PyTorch and back: the same numbers, gradients included, and then the same arrays."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.oracles import oracle

from pellucid import nn
from pellucid.core.errors import UserError
from pellucid.interop.torch import from_torch, to_torch
from pellucid.models import Seq2Seq, Seq2SeqConfig

pytestmark = pytest.mark.oracle("torch")
torch = oracle("torch")

E, H, F, N, L, S = 6, 3, 11, 2, 5, 7
D64: dict[str, Any] = {"dtype": np.float64}


def layer(kind: str, **arguments: Any) -> Any:
    return getattr(nn, f"Transformer{kind}Layer")(E, H, F, batch_first=True, **arguments, **D64)


BUILDS: dict[str, Callable[[], nn.Module]] = {
    "Linear": lambda: nn.Linear(E, F, **D64),
    "Linear without bias": lambda: nn.Linear(E, F, bias=False, **D64),
    "LayerNorm": lambda: nn.LayerNorm(E, 1e-3, **D64),
    "LayerNorm without affine": lambda: nn.LayerNorm((L, E), elementwise_affine=False),
    "MultiheadAttention": lambda: nn.MultiheadAttention(E, H, batch_first=True, **D64),
    "MultiheadAttention, all else": lambda: nn.MultiheadAttention(
        E, H, 0.1, True, True, True, E, E + 1, True, **D64
    ),
    "encoder layer": lambda: layer("Encoder", norm_first=True, activation="gelu"),
    "encoder layer, tanh": lambda: layer("Encoder", activation="gelu_tanh", bias=False),
    "encoder layer, module": lambda: layer("Encoder", activation=nn.LeakyReLU(0.2)),
    "decoder layer": lambda: layer("Decoder", dropout=0.3, layer_norm_eps=1e-3),
    "encoder": lambda: nn.TransformerEncoder(layer("Encoder"), 2, nn.LayerNorm(E, **D64)),
    "decoder": lambda: nn.TransformerDecoder(layer("Decoder"), 3),
    "Transformer": lambda: nn.Transformer(E, H, 2, 2, F, batch_first=True, **D64),
    "Transformer, custom": lambda: nn.Transformer(
        E,
        H,
        custom_encoder=nn.TransformerEncoder(layer("Encoder", norm_first=True), 1),
        custom_decoder=nn.TransformerDecoder(layer("Decoder", activation="silu"), 1),
        batch_first=True,
    ),
}


def inputs(module: nn.Module) -> list[np.ndarray]:
    g = np.random.default_rng(1)
    if isinstance(module, nn.MultiheadAttention):
        return [g.standard_normal(s) for s in ((N, L, E), (N, S, module.kdim), (N, S, module.vdim))]
    if isinstance(module, nn.Transformer):
        return [g.standard_normal((N, S, E)), g.standard_normal((N, L, E))]
    if isinstance(module, nn.TransformerDecoder | nn.TransformerDecoderLayer):
        return [g.standard_normal((N, L, E)), g.standard_normal((N, S, E))]
    return [g.standard_normal((N, L, E))]


def first(y: Any) -> Any:
    return y[0] if isinstance(y, tuple) else y


def assert_near(ours: np.ndarray, theirs: Any, scale: float | None = None) -> None:
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= 1e-12 * (scale or np.abs(theirs).max())


@pytest.mark.parametrize("name", BUILDS)
def test_the_twin_gives_the_same_numbers_and_gradients(name: str) -> None:
    module = BUILDS[name]()
    g = np.random.default_rng(0)
    for parameter in module.parameters():
        parameter.data = parameter.data + 0.3 * g.standard_normal(parameter.shape)
    xs = inputs(module)
    y, backward = module.eval().forward(*xs)
    dy = np.random.default_rng(2).standard_normal(first(y).shape)
    backward(dy)
    twin = to_torch(module)  # the gradients come along, and those of a second pass add up
    y, backward = module.forward(*xs)
    tensors = [torch.from_numpy(x).requires_grad_() for x in xs]
    theirs = first(twin(*tensors))
    theirs.backward(torch.from_numpy(dy))
    gradients = backward(dy)
    assert_near(first(y), theirs)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    for gradient, tensor in zip(gradients, tensors, strict=True):
        assert_near(gradient, tensor.grad)
    named = dict(twin.named_parameters())
    scale = max([float(p.grad.abs().max()) for p in named.values()], default=1.0)
    assert [n for n, _ in module.named_parameters()] == list(named)
    for path, parameter in module.named_parameters():
        assert parameter.grad is not None
        assert_near(parameter.grad, named[path].grad, scale)


@pytest.mark.parametrize("name", BUILDS)
def test_there_and_back_is_the_same_module(name: str) -> None:
    module = BUILDS[name]()
    for i, parameter in enumerate(module.parameters()):
        parameter.requires_grad = i % 2 == 0
    back = from_torch(to_torch(module))
    assert type(back) is type(module)
    assert [m for m, _ in back.named_modules()] == [m for m, _ in module.named_modules()]
    pairs = zip(module.named_modules(), back.named_modules(), strict=True)
    for (path, a), (_, b) in pairs:
        for key, value in vars(a).items():
            if isinstance(value, int | float | str | bool | tuple):
                assert getattr(b, key) == value, f"{path}.{key}"
    for (path, p), (_, q) in zip(module.named_parameters(), back.named_parameters(), strict=True):
        np.testing.assert_array_equal(p.data, q.data, path)
        assert p.requires_grad == q.requires_grad
        assert q.grad is None
        assert not np.shares_memory(p.data, q.data)


def test_an_embedding_there_and_back() -> None:
    table = nn.Embedding(13, E, padding_idx=2, scale_grad_by_freq=True, **D64)
    index = np.array([[1, 2, 2], [7, 12, 1]])
    twin = to_torch(table)
    y, backward = table.forward(index)
    theirs = twin(torch.from_numpy(index))
    assert_near(y, theirs)
    dy = np.random.default_rng(0).standard_normal(y.shape)
    backward(dy)
    theirs.backward(torch.from_numpy(dy))
    assert_near(table.weight.grad, twin.weight.grad)
    back = from_torch(twin)
    np.testing.assert_array_equal(back.weight.grad, table.weight.grad)
    assert (back.padding_idx, back.scale_grad_by_freq) == (2, True)


@pytest.mark.parametrize(
    "activation",
    [
        "relu", torch.nn.functional.gelu, torch.nn.GELU(), torch.nn.GELU("tanh"), torch.nn.SiLU(),
        functools.partial(torch.nn.functional.gelu, approximate="tanh"), torch.nn.LeakyReLU(0.3),
        torch.nn.functional.silu, torch.nn.ReLU(), torch.relu,
    ],
)  # fmt: skip
def test_torchs_activations_are_read(activation: Any) -> None:
    theirs = torch.nn.TransformerEncoderLayer(E, H, F, 0.0, activation, dtype=torch.float64)
    x = np.random.default_rng(0).standard_normal((L, N, E))
    assert_near(from_torch(theirs)(x), theirs(torch.from_numpy(x)))


def test_float32_and_train_or_eval_come_along() -> None:
    module = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, H, F), 2)
    module.layers[1].eval()
    twin = to_torch(module)
    assert {p.dtype for p in twin.parameters()} == {torch.float32}
    assert [part.training for part in (twin, *twin.layers)] == [True, True, False]
    back = from_torch(twin)
    assert [part.training for part in (back, *back.layers)] == [True, True, False]


def test_a_transposed_weight_comes_as_the_kernels_take_it() -> None:
    theirs = torch.nn.Linear(E, F)
    theirs.weight = torch.nn.Parameter(theirs.weight.detach().t().contiguous().t())
    ours = from_torch(theirs)
    assert ours.weight.data.flags.c_contiguous  # type: ignore[attr-defined]


def test_what_a_module_does_beside_its_class_is_refused_by_name() -> None:
    """A hook, a forward of its own, one weight under two names: none would come along."""
    normed = torch.nn.Linear(3, 2)
    normed.register_forward_pre_hook(lambda *_: None)  # as weight_norm does
    observed = torch.nn.Linear(3, 2)
    observed.register_forward_hook(lambda *_: None)
    own = torch.nn.Linear(3, 2)
    own.forward = lambda x: x
    layer = torch.nn.TransformerEncoderLayer(6, 2, 7, batch_first=True)
    stack = torch.nn.TransformerEncoder(layer, 2)
    stack.layers[1] = stack.layers[0]
    more = torch.nn.TransformerEncoderLayer(6, 2, 7)
    more.adapter = torch.nn.Linear(2, 5, bias=False)
    counted = torch.nn.Linear(3, 2)
    counted.register_buffer("steps", torch.ones(2))
    for module, reason in (
        (more, "adapter.weight is no part of the modules that were converted"),
        (counted, "steps is no part of the modules"),
        (torch.nn.Linear(3, 2, device="meta"), "holds no numbers"),
        (normed, "the module has _forward_pre_hooks"),
        (observed, "the module has _forward_hooks"),
        (own, "the module has forward of its own"),
        (stack, "layers.0.self_attn.in_proj_weight and layers.1.*one parameter"),
    ):
        with pytest.raises(UserError, match=reason):
            from_torch(module)


def test_what_has_no_twin_is_named() -> None:
    class Own(nn.Module):
        pass

    class Doubled(nn.TransformerEncoderLayer):
        def forward(self, src: Any, *masks: Any, **options: Any) -> Any:
            return 2 * src, lambda dy: 2 * dy

    class Headless(nn.TransformerDecoderLayer):
        def blocks(self, *attentions: Any) -> Any:
            return super().blocks(*attentions)[1:]

    for changed in (Doubled, Headless):
        with pytest.raises(UserError, match=f"{changed.__name__} has no twin"):
            to_torch(changed(E, H, F))
    with pytest.raises(UserError, match=r"Own has no twin in torch\.nn"):
        to_torch(Own())
    with pytest.raises(UserError, match=r"Conv1d has no twin in pellucid\.nn"):
        from_torch(torch.nn.Conv1d(3, 3, 3))
    with pytest.raises(UserError, match=r"scales scores by 1/√D, this one by 0\.7"):
        to_torch(nn.MultiheadAttention(E, H, scale=0.7))
    with pytest.raises(UserError, match="by what each head has learned; it has no twin"):
        to_torch(nn.TransformerEncoderLayer(E, H, 17, scale="learned"))
    with pytest.raises(UserError, match="0 layers"):
        to_torch(nn.TransformerEncoder(layer("Encoder"), 0))
    with pytest.raises(UserError, match="max_norm"):
        from_torch(torch.nn.Embedding(5, 3, max_norm=1.0))
    with pytest.raises(UserError, match=r"bfloat16 is no dtype of NumPy's"):
        from_torch(torch.nn.Linear(3, 2, dtype=torch.bfloat16))
    with pytest.raises(UserError, match=r"float16.*convert the module with \.float\(\) first"):
        from_torch(torch.nn.Linear(3, 2, dtype=torch.float16))
    with pytest.raises(UserError, match="no twin with a derivative"):
        from_torch(torch.nn.TransformerEncoderLayer(E, H, F, activation=lambda x: x))
    config = Seq2SeqConfig(11, 13, d_model=E, num_attention_heads=H, ffn_dim=F)
    with pytest.raises(UserError, match="EncoderLayer has no twin"):
        to_torch(Seq2Seq(config).encoder)


def test_without_torch_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match=r"to_torch needs PyTorch.*torch>="):
        to_torch(nn.Linear(3, 2))
