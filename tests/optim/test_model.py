from __future__ import annotations

import contextlib
import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from pellucid import nn
from pellucid.core import dispatch
from pellucid.core.errors import UsageError, UserError
from pellucid.nn.module import Parameter
from pellucid.optim import OPTIMIZERS, Optimizer
from pellucid.optim.config import OptimizerConfig
from pellucid.optim.model import ModelOptimizer, clip_factor, global_norm
from pellucid.optim.step import DivergedError

each = pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=list(OPTIMIZERS))
SHAPES = {
    "weight": (3, 5),
    "bias": (7,),
    "scalar": (),
    "layers.0.linear1.weight": (3, 5),
    "layers.0.linear2.weight": (7, 2),
}
AS_TORCH = [(name, decay) for name in OPTIMIZERS for decay in (None, 0.0, 0.2)]
GOLDEN = load_file(Path(__file__).parents[1] / "fixtures" / "optimizers.safetensors")


def parameters(dtype: type = np.float64) -> dict[str, Parameter]:
    g = np.random.default_rng(0)
    made = {name: Parameter(shape, lambda *_: np.zeros(1), dtype) for name, shape in SHAPES.items()}
    for parameter in made.values():
        parameter.data = np.asarray(g.standard_normal(parameter.shape), dtype)
    return made


def gradients(step: int) -> dict[str, np.ndarray]:
    g = np.random.default_rng(step)
    return {name: np.asarray(g.standard_normal(shape)) for name, shape in SHAPES.items()}


@each
def test_a_page_writes_into_no_argument(optimizer: Optimizer) -> None:
    g = np.random.default_rng(0)
    theta, gradient = g.standard_normal((2, 3, 5))
    states = tuple(np.abs(g.standard_normal(s.shape)) for s in optimizer.initial(theta))
    before = [a.copy() for a in (theta, gradient, *states)]
    options = {**optimizer.settings, **optimizer.options, "weight_decay": 0.1}
    new, new_states = optimizer.step(theta, gradient, states, step=3, lr=0.1, **options)
    assert new.shape == theta.shape
    assert len(new_states) == len(states)
    for array, was in zip((theta, gradient, *states), before, strict=True):
        np.testing.assert_array_equal(array, was)


@each
def test_a_checkpoint_has_every_state_of_every_parameter(optimizer: Optimizer) -> None:
    state = ModelOptimizer(parameters(), OptimizerConfig(optimizer.name)).state_dict()
    expected = [
        f"{kept}.{key}"
        for key, shape in SHAPES.items()
        for kept in (*optimizer.of(key, shape).states, "step")
    ]
    assert sorted(state) == sorted(expected)


def test_adam_keeps_the_names_that_old_checkpoints_have() -> None:
    assert OPTIMIZERS["adam"].states == OPTIMIZERS["adamw"].states == ("exp_avg", "exp_avg_sq")


@each
def test_the_fused_step_is_as_near_to_float64_as_the_page(optimizer: Optimizer) -> None:
    assert dispatch.kernel_of(optimizer.step.__name__)

    def stepped(dtype: Any) -> list[np.ndarray]:
        made = parameters(dtype)
        model = ModelOptimizer(made, OptimizerConfig(optimizer.name, weight_decay=0.1))
        for step in range(5):
            for key, gradient in gradients(step).items():
                made[key].grad = gradient.astype(np.float32).astype(dtype)
            model.step(lr=0.01, scale=0.37)
        return [p.data for p in made.values()] + list(model.state_dict().values())

    exact, fused = stepped(np.float64), stepped(np.float32)
    with dispatch.reference():
        plain = stepped(np.float32)
    for true, fast, slow in zip(exact, fused, plain, strict=True):
        allowed = 2 * np.abs(slow - true).max() + 2 * np.finfo(np.float32).eps * np.abs(true).max()
        assert np.abs(fast - true).max() <= allowed


@each
def test_the_standard_step_is_the_kernel_s(
    optimizer: Optimizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dispatch.kernel_of(optimizer.step.__name__)

    @functools.wraps(optimizer.step)
    def page(*_: Any, **__: Any) -> Any:
        raise AssertionError("the page ran")

    made = parameters(np.float32)
    replaced = dataclasses.replace(optimizer, step=page)
    monkeypatch.setitem(OPTIMIZERS, optimizer.name, replaced)
    model = ModelOptimizer(made, OptimizerConfig(optimizer.name))
    for key, gradient in gradients(0).items():
        made[key].grad = np.array(gradient, np.float32, order="F")
    model.step(lr=0.1)
    with dispatch.reference(), pytest.raises(AssertionError, match="the page ran"):
        model.step(lr=0.1)


def ten_steps(name: str, weight_decay: float | None) -> dict[str, np.ndarray]:
    config = OptimizerConfig(name=name, betas=(0.8, 0.97), eps=1e-6, weight_decay=weight_decay)
    ours = parameters()
    optimizer = ModelOptimizer(ours, config)
    for step in range(10):
        for key, gradient in gradients(step).items():
            ours[key].grad = None if key == "bias" and step == 4 else gradient
        optimizer.step(lr=0.03)
    return {key: p.data for key, p in ours.items()}


@pytest.mark.parametrize(("name", "weight_decay"), AS_TORCH)
def test_ten_steps_equal_what_torch_stored(name: str, weight_decay: float | None) -> None:
    """Muon's matrices as torch computes them without its rounding to bfloat16."""
    found = ten_steps(name, weight_decay)
    for key, x in found.items():
        np.testing.assert_allclose(x, GOLDEN[f"{name}/{weight_decay}/{key}"], rtol=1e-11)


@pytest.mark.oracle("torch")
@pytest.mark.parametrize(("name", "weight_decay"), AS_TORCH)
def test_ten_steps_equal_torch_now(name: str, weight_decay: float | None) -> None:
    from tests.optim import torch_reference

    found = ten_steps(name, weight_decay)
    start = {key: p.data for key, p in parameters().items()}
    live = torch_reference.ten_steps(name, weight_decay, start, gradients)
    for key, x in found.items():
        np.testing.assert_allclose(x, live[key], rtol=1e-11)


@pytest.mark.oracle("torch")
def test_clipping_equals_torch() -> None:
    import torch

    ours = parameters()
    theirs = [torch.nn.Parameter(torch.tensor(p.data)) for p in ours.values()]
    for (key, gradient), other in zip(gradients(3).items(), theirs, strict=True):
        ours[key].grad, other.grad = gradient, torch.tensor(gradient)
    expected = float(torch.nn.utils.clip_grad_norm_(theirs, 0.7))
    norm = ModelOptimizer(ours).norm()
    np.testing.assert_allclose(norm, expected, rtol=1e-12)
    factor = clip_factor(norm, 0.7)
    for parameter, other in zip(ours.values(), theirs, strict=True):
        np.testing.assert_allclose(parameter.grad * factor, other.grad.numpy(), rtol=1e-12)


def test_norm_survives_squares_beyond_float32() -> None:
    assert global_norm([np.full((2, 2), 1e30, np.float32)]) == pytest.approx(2e30, rel=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_named(bad: float) -> None:
    made = parameters()
    for key, gradient in gradients(0).items():
        made[key].grad = gradient
    made["bias"].grad = np.full(7, bad)
    optimizer = ModelOptimizer(made)
    assert not np.isfinite(optimizer.norm())
    assert optimizer.not_finite() == ["bias"]


def test_a_norm_that_is_no_number_makes_the_factor_none() -> None:
    """As in torch; 1 would step along a gradient that nobody has measured."""
    assert np.isnan(clip_factor(float("nan"), 1.0))


def test_no_limit_leaves_the_gradient() -> None:
    assert clip_factor(1e9, float("inf")) == 1.0


def test_a_tied_parameter_is_stepped_once() -> None:
    shared = parameters()["weight"]
    shared.grad = np.ones(shared.shape)
    before = shared.data.copy()
    optimizer = ModelOptimizer({"input": shared, "output": shared})
    optimizer.step(lr=0.1)
    np.testing.assert_allclose(before - shared.data, 0.1, rtol=1e-6)
    assert sorted(optimizer.state_dict()) == ["exp_avg.input", "exp_avg_sq.input", "step.input"]


def test_scale_multiplies_the_gradient() -> None:
    a, b = parameters(), parameters()
    for key, gradient in gradients(0).items():
        a[key].grad, b[key].grad = gradient, gradient * 0.25
    ModelOptimizer(a, OptimizerConfig(eps=0.1)).step(lr=0.1, scale=0.25)
    ModelOptimizer(b, OptimizerConfig(eps=0.1)).step(lr=0.1)
    for key in SHAPES:
        np.testing.assert_array_equal(a[key].data, b[key].data)


def test_float32_stays_float32() -> None:
    made = parameters(np.float32)
    for key, gradient in gradients(0).items():
        made[key].grad = gradient.astype(np.float32)
    optimizer = ModelOptimizer(made, OptimizerConfig(name="adamw"))
    optimizer.step(lr=np.float64(0.1), scale=0.5)
    assert {p.data.dtype for p in made.values()} == {np.dtype(np.float32)}
    moments = {k: a for k, a in optimizer.state_dict().items() if not k.startswith("step")}
    assert {a.dtype for a in moments.values()} == {np.dtype(np.float32)}


def test_a_gradient_of_another_shape_is_refused_and_nothing_is_stepped() -> None:
    made = {"first": parameters()["bias"], "row": Parameter((1, 5), lambda *_: np.zeros(1))}
    made["first"].grad, made["row"].grad = np.ones(7), np.ones((3, 5), np.float32)
    before, optimizer = made["first"].data.copy(), ModelOptimizer(made)
    with pytest.raises(ValueError, match=r"row: expected \(1, 5\), got \(3, 5\)"):
        optimizer.step(lr=0.1)
    np.testing.assert_array_equal(made["first"].data, before)
    assert optimizer.state_dict()["step.first"] == 0


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_gradient_of_another_dtype_leaves_the_parameter_its_own(dtype: Any, fused: bool) -> None:
    made, other = parameters(dtype), np.float64 if dtype == np.float32 else np.float32
    for key, gradient in gradients(0).items():
        made[key].grad = gradient.astype(other)
    optimizer = ModelOptimizer(made)
    with contextlib.nullcontext() if fused else dispatch.reference():
        optimizer.step(lr=0.1, scale=0.5)
    moments = {k: a for k, a in optimizer.state_dict().items() if not k.startswith("step")}
    assert {a.dtype for a in (*moments.values(), *(p.data for p in made.values()))} == {
        np.dtype(dtype)
    }
    ModelOptimizer(made).load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_step_writes_into_the_arrays_that_there_are(dtype: Any, fused: bool) -> None:
    made = parameters(dtype)
    optimizer, held = ModelOptimizer(made), {key: parameter.data for key, parameter in made.items()}
    state = optimizer.state_dict()
    for key, gradient in gradients(0).items():
        made[key].grad = gradient.astype(dtype)
    with contextlib.nullcontext() if fused else dispatch.reference():
        optimizer.step(lr=0.1)
    assert all(made[key].data is array for key, array in held.items())
    assert all(state[f"exp_avg.{key}"].any() for key in SHAPES)


def test_an_array_that_cannot_be_written_to_is_left_as_it_is() -> None:
    weight = Parameter((3, 5), lambda *_: np.zeros(1))
    weight.data, weight.grad = np.broadcast_to(np.float32(2.0), (3, 5)), np.ones((3, 5), np.float32)
    given = weight.data
    ModelOptimizer({"weight": weight}).step(lr=0.5)
    np.testing.assert_allclose(weight.data, 1.5)
    np.testing.assert_array_equal(given, 2.0)


@each
def test_state_goes_on_where_it_was(optimizer: Optimizer) -> None:
    straight, broken = parameters(), parameters()
    config = OptimizerConfig(optimizer.name)
    one, two = ModelOptimizer(straight, config), ModelOptimizer(broken, config)
    for step in range(6):
        if step == 3:
            state = {name: array.copy() for name, array in two.state_dict().items()}
            two = ModelOptimizer(broken, config)
            two.load_state_dict(state)
        for key, gradient in gradients(step).items():
            straight[key].grad = broken[key].grad = gradient
        one.step(lr=0.1)
        two.step(lr=0.1)
    for key in SHAPES:
        np.testing.assert_array_equal(straight[key].data, broken[key].data)


def test_a_foreign_state_is_refused_by_name() -> None:
    optimizer = ModelOptimizer(parameters())
    state = optimizer.state_dict()
    state["exp_avg.other"] = state.pop("exp_avg.bias")
    state["exp_avg.weight"] = np.zeros((5, 3))
    with pytest.raises(UserError) as error:
        optimizer.load_state_dict(state)
    reported = str(error.value)
    assert "exp_avg.bias: float64(7,) -> none" in reported
    assert "exp_avg.other: none -> float64(7,)" in reported
    assert "exp_avg.weight: float64(3, 5) -> float64(5, 3)" in reported


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "sgd"},
        {"betas": (0.9, 1.0)},
        {"betas": (0.9,)},
        {"momentum": 1.0},
        {"eps": 0.0},
        {"weight_decay": -0.1},
        {"clip": 0.0},
        {"clip": float("nan")},
    ],
)
def test_settings_out_of_range(wrong: dict) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        OptimizerConfig(**wrong)


def test_torch_defaults() -> None:
    assert OptimizerConfig("adam").settings()["weight_decay"] == 0.0
    assert OptimizerConfig("adamw").settings()["weight_decay"] == 0.01
    assert OptimizerConfig("adamw", weight_decay=0.0).settings()["weight_decay"] == 0.0


def test_divergence_says_where_and_what_to_try() -> None:
    reported = str(DivergedError("the loss is nan", 17, 0.25))
    assert "step 17" in reported
    assert "0.25" in reported
    assert "lower learning rate" in reported


def test_layers_that_begin_alike_are_named() -> None:
    """Both draw `weight` from one seed; as parts of one module they have names of their own."""
    pair = nn.ModuleList([nn.Linear(3, 5), nn.Linear(3, 5)])
    with pytest.warns(UserWarning, match=r"0\.weight and 1\.weight begin with the same numbers"):
        ModelOptimizer(pair.named_parameters())
    ModelOptimizer(pair.initialise(0).named_parameters())
