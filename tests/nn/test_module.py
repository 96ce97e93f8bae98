"""Parameters, names, state dicts, and ways back that are used once."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest
from tests.kernels.compare import HAS_KERNELS, planned

import pellucid
from pellucid import nn, ops


class Tied(nn.Module):
    """A table used at the way in and at the way out, as many language models have it."""

    def __init__(self) -> None:
        self.tokens = nn.Embedding(7, 3, dtype=np.float64)
        self.output = nn.Linear(3, 7, dtype=np.float64)
        self.output.weight = self.tokens.weight
        self.initialise(0)

    def forward(self, index: Any) -> Any:
        x, to_table = self.tokens.forward(index)
        y, to_x = self.output.forward(x)

        @nn.single_use
        def backward(dy: Any) -> None:
            to_table(to_x(dy))

        return y, backward


def test_errors_of_a_state_dict_list_every_key() -> None:
    layer = nn.TransformerEncoderLayer(6, 2, 11)
    before = copy.deepcopy(layer.state_dict())
    state = dict(layer.state_dict())
    del state["linear1.bias"], state["norm2.weight"]
    state["linear3.weight"] = np.ones(3)
    state["linear2.weight"] = np.ones((2, 2))
    state["self_attn.in_proj_weight"] = np.ones((18, 6))
    with pytest.raises(nn.StateError) as caught:
        layer.load_state_dict(state)
    text = str(caught.value)
    for fault in (
        "linear1.bias: missing, expected shape (11,)",
        "norm2.weight: missing, expected shape (6,)",
        "linear3.weight: unexpected",
        "linear2.weight: expected shape (6, 11), got (2, 2)",
    ):
        assert fault in text
    assert "in_proj_weight" not in text
    for name, value in layer.state_dict().items():
        np.testing.assert_array_equal(value, before[name])  # nothing was changed


def test_not_strict_forgives_keys_but_no_shapes() -> None:
    layer = nn.Linear(3, 2)
    passed_over = layer.load_state_dict({"weight": np.ones((2, 3)), "more": np.ones(1)}, False)
    assert passed_over.missing_keys == ["bias"]
    assert passed_over.unexpected_keys == ["more"]
    np.testing.assert_array_equal(layer.weight.data, 1.0)
    with pytest.raises(nn.StateError, match=r"expected shape \(2, 3\), got \(3, 2\)"):
        layer.load_state_dict({"weight": np.ones((3, 2))}, strict=False)


def test_a_prefix_before_every_key_is_named() -> None:
    layer = nn.Linear(3, 2)
    state = {f"module.{name}": array + 1 for name, array in layer.state_dict().items()}
    for strict in (True, False):
        with pytest.raises(nn.StateError, match=r"every name begins with module\., .*take it off"):
            layer.load_state_dict(state, strict)
    assert layer.load_state_dict({"more.one": np.ones(1)}, False).unexpected_keys == ["more.one"]


def test_loading_copies_and_converts() -> None:
    layer, weight = nn.Linear(3, 2, bias=False), np.ones((2, 3))
    assert layer.load_state_dict({"weight": weight}) == ([], [])
    weight[:] = 5.0
    assert layer.weight.data.dtype == np.float32
    np.testing.assert_array_equal(layer.weight.data, 1.0)


def test_a_narrowed_parameter_is_loaded_in_full_precision() -> None:
    layer = nn.Linear(2, 3, dtype=np.float64).narrow(np.float32)
    state = {"weight": np.full((3, 2), 1 / 7), "bias": np.full(3, 1 / 11)}
    layer.load_state_dict(state)
    np.testing.assert_array_equal(layer.weight.data, np.float32(1 / 7))
    for name, value in layer.state_dict().items():
        np.testing.assert_array_equal(value, state[name])


@HAS_KERNELS
def test_a_transposed_array_is_loaded_as_the_kernels_take_it() -> None:
    """A weight that stands column by column would go the plain road, for as long as it lives."""
    layer, x = nn.Linear(5, 7, bias=False), np.ones((17, 5), np.float32)
    layer.load_state_dict({"weight": np.arange(35.0).reshape(5, 7).T})
    np.testing.assert_array_equal(layer.weight.data[:, 0], np.arange(7))
    assert planned(ops.linear, x, layer.weight.data)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize(
    "build",
    [
        lambda lib: lib.Transformer(6, 2, 1, 2, 11, batch_first=True),
        lambda lib: lib.Transformer(6, 2, 1, 1, 11, bias=False, batch_first=True),
        lambda lib: lib.MultiheadAttention(6, 2, kdim=3, add_bias_kv=True),
        lambda lib: lib.MultiheadAttention(6, 2, bias=False, vdim=5),
        lambda lib: lib.LayerNorm((3, 5), bias=False),
        lambda lib: lib.LayerNorm(3, elementwise_affine=False),
    ],
)
@pytest.mark.oracle("torch")
def test_keys_order_and_shapes_are_torchs(build: Any) -> None:
    import torch

    theirs = {name: tuple(value.shape) for name, value in build(torch.nn).state_dict().items()}
    ours = {name: value.shape for name, value in build(nn).state_dict().items()}
    assert list(ours.items()) == list(theirs.items())


def test_the_class_weight_of_a_loss_is_state_as_in_torch() -> None:
    loss = nn.CrossEntropyLoss(np.array([1.0, 2.0]))
    assert list(loss.state_dict()) == ["weight"]
    assert list(loss.parameters()) == []
    loss.load_state_dict({"weight": np.array([3.0, 4.0])})
    assert loss.weight is not None
    np.testing.assert_array_equal(loss.weight.data, [3.0, 4.0])


@pytest.mark.oracle("torch")
def test_modules_are_walked_as_in_torch() -> None:
    """`for m in model.modules(): if isinstance(m, nn.Dropout): m.p = 0.0` does it."""
    import torch

    def walked(library: Any) -> list[tuple[str, str]]:
        model = library.TransformerDecoderLayer(6, 2, 11)
        names = {id(module): name for name, module in model.named_modules()}
        return [(names[id(m)], type(m).__name__) for m in model.modules()]

    theirs = [pair for pair in walked(torch.nn) if "out_proj" not in pair[0]]
    assert [pair for pair in walked(nn) if "out_proj" not in pair[0]] == theirs
    one = nn.ReLU()
    assert len(list(nn.ModuleList([one, one]).modules())) == 2


def test_a_tied_parameter_is_one() -> None:
    model = Tied()
    assert [name for name, _ in model.named_parameters()] == ["tokens.weight", "output.bias"]
    assert list(model.state_dict()) == ["tokens.weight", "output.weight", "output.bias"]
    state = {name: value.copy() for name, value in model.state_dict().items()}
    state["tokens.weight"] += 1.0
    with pytest.raises(nn.StateError, match=r"output.weight and tokens.weight: one tied parameter"):
        model.load_state_dict(state)
    state["output.weight"] += 1.0
    model.load_state_dict(state)
    assert model.output.weight is model.tokens.weight
    one_name = {name: state[name] for name in ("output.weight", "output.bias")}
    assert model.load_state_dict(one_name, strict=False).missing_keys == ["tokens.weight"]


def test_a_parameter_takes_no_gradient_of_another_shape() -> None:
    bias = nn.Linear(3, 2).bias
    assert bias is not None
    for shape in ((1, 2), (5, 2), (), (3,)):
        with pytest.raises(ValueError, match=r"its parameter: expected \(2,\)"):
            bias.accumulate(np.ones(shape, np.float32))
    assert bias.grad is None


def test_gradients_of_a_tied_parameter_add() -> None:
    model = Tied()
    index = np.array([1, 4, 1])
    y, backward = model.forward(index)
    dy = np.random.default_rng(0).standard_normal(y.shape)
    backward(dy)
    weight, h = model.tokens.weight, 1e-6
    for place in ((1, 0), (2, 1)):  # a row used both ways, a row used at the way out
        moved = []
        for sign in (1, -1):
            weight.data[place] += sign * h
            moved.append((model(index) * dy).sum())
            weight.data[place] -= sign * h
        assert weight.grad is not None
        np.testing.assert_allclose(weight.grad[place], (moved[0] - moved[1]) / (2 * h), rtol=1e-7)


def test_a_copy_of_a_tied_model_stays_tied() -> None:
    model = copy.deepcopy(Tied())
    assert model.output.weight is model.tokens.weight


def test_query_key_and_value_apart_are_views() -> None:
    mha = nn.MultiheadAttention(6, 2, dtype=np.float64)
    x = np.random.default_rng(0).standard_normal((5, 3, 6))
    assert mha.in_proj_weight is not None
    assert mha.in_proj_bias is not None
    for i, name in enumerate("qkv"):
        weight, bias = getattr(mha.projections(), name)
        rows = slice(6 * i, 6 * i + 6)
        np.testing.assert_array_equal(weight, mha.in_proj_weight.data[rows])
        assert np.shares_memory(weight, mha.in_proj_weight.data)
        assert np.shares_memory(bias, mha.in_proj_bias.data)
    before = mha(x, x, x)[1]
    mha.projections().q.weight[:] = 0.0
    mha.projections().q.bias[:] = 0.0
    np.testing.assert_allclose(mha(x, x, x)[1], 1 / 5)
    assert not np.allclose(before, 1 / 5)
    separate = nn.MultiheadAttention(6, 2, kdim=3, bias=False)
    assert separate.k_proj_weight is not None
    assert separate.projections().k.weight is separate.k_proj_weight.data
    assert separate.projections().k.bias is None


def _tuple(gradients: Any) -> tuple[Any, ...]:
    return gradients if isinstance(gradients, tuple) else (gradients,)


@pytest.mark.parametrize(
    ("layer", "shapes"),
    [
        (nn.Linear(6, 5), [(3, 6)]),
        (nn.LayerNorm(6), [(3, 6)]),
        (nn.GELU(), [(3, 6)]),
        (nn.Dropout(0.5), [(3, 6)]),
        (nn.MultiheadAttention(6, 2, 0.1), [(3, 6), (5, 6), (5, 6)]),
        (nn.TransformerEncoderLayer(6, 2, 11, norm_first=True), [(3, 6)]),
        (nn.TransformerDecoderLayer(6, 2, 11), [(3, 6), (5, 6)]),
        (nn.Transformer(6, 2, 1, 1, 11), [(3, 6), (5, 6)]),
    ],
)
def test_a_layer_used_twice_and_its_arguments_untouched(layer: nn.Module, shapes: Any) -> None:
    """Two forwards, then two backwards in the other order: each way back has its own memory."""
    g = np.random.default_rng(0)
    first, second = ([g.standard_normal(s).astype(np.float32) for s in shapes] for _ in range(2))
    kept = copy.deepcopy((first, second))
    random = layer.training and any(isinstance(m, nn.Dropout) for m in layer.modules())
    random = random or getattr(layer, "dropout", 0) == 0.1
    options = [{"rng": pellucid.Rng(i)} if random else {} for i in (1, 2)]

    def run(order: list[int]) -> tuple[dict[int, Any], dict[str, Any]]:
        layer.zero_grad()
        calls = {i: layer.forward(*(first, second)[i], **options[i]) for i in (0, 1)}
        grads = {}
        for i in order:
            y, backward = calls[i]
            y = y[0] if isinstance(y, tuple) else y
            dy = np.cos(y)
            grads[i] = backward(dy)
            np.testing.assert_array_equal(dy, np.cos(y))
            with pytest.raises(RuntimeError, match="used once"):
                backward(dy)
        return grads, {name: p.grad for name, p in layer.named_parameters()}

    (forth, sums), (back, same_sums) = run([0, 1]), run([1, 0])
    for i in (0, 1):
        for a, b in zip(_tuple(forth[i]), _tuple(back[i]), strict=True):
            np.testing.assert_array_equal(a, b)
    for name, total in sums.items():
        np.testing.assert_allclose(total, same_sums[name], rtol=1e-5, atol=1e-6)
    for inputs, before in zip((first, second), kept, strict=True):
        for a, b in zip(inputs, before, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_frozen_table_gets_no_gradient() -> None:
    layer = nn.Embedding(5, 3, _weight=np.ones((5, 3)), _freeze=True)
    y, backward = layer.forward(np.array([1, 1]))
    backward(y)
    assert layer.weight.grad is None
    assert layer.weight.data.dtype == np.float64


def test_a_norm_takes_any_integer_as_its_width() -> None:
    assert nn.LayerNorm(np.int64(7)).normalized_shape == (7,)
    with pytest.raises(TypeError):
        nn.LayerNorm(7.0)  # type: ignore[arg-type]


def test_stacks_copy_their_layer() -> None:
    layer = nn.TransformerEncoderLayer(6, 2, 11)
    stack = nn.TransformerEncoder(layer, 2)
    first, second = stack.layers
    np.testing.assert_array_equal(first.linear1.weight.data, second.linear1.weight.data)
    first.linear1.weight.data += 1.0
    assert not np.array_equal(first.linear1.weight.data, second.linear1.weight.data)
    assert not np.array_equal(first.linear1.weight.data, layer.linear1.weight.data)


def test_a_whole_transformer_starts_with_layers_apart() -> None:
    model = nn.Transformer(6, 2, 2, 2, 11)
    drawn = [p.data.ravel() for p in model.parameters() if len(p.shape) > 1]
    for i, one in enumerate(drawn):
        for other in drawn[i + 1 :]:
            assert not np.intersect1d(one, other).size


def test_first_values_depend_on_the_name_alone() -> None:
    """Another depth, or parts built before, leave a parameter's first value as it is."""
    small, large = (nn.Transformer(6, 2, 1, layers, 11, seed=3) for layers in (1, 4))
    for name, value in small.state_dict().items():
        np.testing.assert_array_equal(value, large.state_dict()[name])
    other = nn.Transformer(6, 2, 1, 1, 11, seed=4)
    assert not np.array_equal(
        small.encoder.layers[0].linear1.weight.data, other.encoder.layers[0].linear1.weight.data
    )


@pytest.mark.parametrize(
    "module",
    [
        nn.Transformer(6, 2, 1, 1, 11, activation=nn.functional.gelu),
        nn.TransformerEncoderLayer(6, 2, 11, activation=nn.GELU("tanh")),
        nn.TransformerEncoderLayer(6, 2, 11, activation=pellucid.pair(ops.silu, ops.silu_backward)),
        nn.MultiheadAttention(6, 2, add_bias_kv=True, scale="learned"),
        nn.Embedding(5, 3, padding_idx=1),
        nn.CrossEntropyLoss(np.ones(3)),
    ],
)
def test_a_pickled_module_is_small_and_computes_the_same(module: nn.Module) -> None:
    pickled = pickle.dumps(module)
    weights = sum(value.nbytes for value in module.state_dict().values())
    assert len(pickled) < weights + 500 * (len(list(module.modules())) + 2)
    copied = pickle.loads(pickled)
    for name, value in module.state_dict().items():
        np.testing.assert_array_equal(copied.state_dict()[name], value)
    copied.initialise(1)
    module.initialise(1)
    for name, value in module.state_dict().items():
        np.testing.assert_array_equal(copied.state_dict()[name], value)


def test_a_pickled_tied_model_stays_tied() -> None:
    model = pickle.loads(pickle.dumps(nn.Linear(3, 2)))
    tied = nn.ModuleList([model, nn.Linear(3, 2)])
    tied[1].weight = model.weight
    copied = pickle.loads(pickle.dumps(tied))
    assert copied[0].weight is copied[1].weight


@pytest.mark.skipif(sys.platform == "emscripten", reason="there are no threads")
def test_threads_lose_no_gradient() -> None:
    """Four threads run backward through one parameter; every contribution arrives."""
    layer, x = nn.Linear(3, 2), np.ones((5, 3), np.float32)

    def work() -> None:
        for _ in range(100):
            y, backward = layer.forward(x)
            backward(np.ones_like(y))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert layer.weight.grad is not None
    np.testing.assert_array_equal(layer.weight.grad, np.full((2, 3), 5 * 400))


@pytest.mark.parametrize("kind", [list, tuple])
def test_layers_in_a_plain_list_are_refused_and_not_left_out(kind: type) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            self.layers: Any = kind([nn.Linear(2, 2)])

    net = Net()
    for walk in (net.state_dict, net.eval, net.zero_grad):
        with pytest.raises(TypeError, match=r"Net.layers is a plain list .* write ModuleList"):
            walk()
    net.layers = nn.ModuleList(net.layers)
    assert [*net.state_dict()] == ["layers.0.weight", "layers.0.bias"]
    net.layers = [3, "x"]
    assert [*net.state_dict()] == []
