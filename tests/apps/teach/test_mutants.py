"""Mistakes that no list has: how many of those in the files next to this one are named."""

from __future__ import annotations

import importlib.util
import textwrap
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pellucid.apps.teach.exercise import (
    EXERCISES,
    Result,
    advice,
    diagnose,
    read,
    right_results,
    solution,
)
from pellucid.apps.teach.mutants import mutants, terms

ROOT = Path(__file__).parents[3]
FILE = Path(__file__).with_name("ordinary_mistakes.toml")
ORDINARY = tomllib.loads(FILE.read_text(encoding="utf-8"))
LEARNERS = tomllib.loads(FILE.with_name("learners_mistakes.toml").read_text(encoding="utf-8"))
OTHERS = tomllib.loads(FILE.with_name("another_hand.toml").read_text(encoding="utf-8"))
SIZES = {"ordinary": 78, "first": 60, "second": 30, "third": 30, "fourth": 30}


def written(name: str, body: str) -> Callable[..., Any]:
    """Return a learner's function."""
    scope: dict[str, Any] = {"np": np}
    arguments = ", ".join(read(name)["arguments"])
    exec(f"def f({arguments}):\n{textwrap.indent(body, '    ')}", scope)
    return scope["f"]  # type: ignore[no-any-return]


def wrong(name: str, body: str) -> list[Result]:
    return [result for result in diagnose(name, written(name, body)) if not result.passed]


def script() -> ModuleType:
    """Return scripts/named_mistakes.py, which counts."""
    spec = importlib.util.spec_from_file_location("named", ROOT / "scripts" / "named_mistakes.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("title", SIZES)
def test_most_ordinary_mistakes_are_named_and_none_is_accepted(title: str) -> None:
    module = script()
    row = module.counted(module.measured(module.sets()[title]))
    every, named, _, _, accepted = map(int, row.strip("| ").split(" | "))
    assert every == SIZES[title]
    assert named / every >= 0.6
    assert accepted == 0
    for page in ("exercises.md", "exercises.ko.md"):
        assert row in (ROOT / "docs" / page).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "body", "says"),
    [
        (
            "layer_norm_backward",
            ORDINARY["layer_norm_backward"]["half"],
            "0.5 × `x_hat * mean_gx / std`. It should count once",
        ),
        (
            "encoder_layer_backward",
            ORDINARY["encoder_layer_backward"]["norm_1_forgotten"],
            "`dz` where `norm_1_backward(dz)` belongs",
        ),
        (
            "gelu_backward",
            ORDINARY["gelu_backward"]["two"],
            "1 + 2 * 0.044715 * x ** 2",
        ),
        (
            "causal_weights",
            "e = np.tril(np.exp(a))\nreturn e / (e.sum(axis=-1, keepdims=True) + 0.2)",
            "Each row of weights must sum to 1",
        ),
        (
            "causal_weights",
            ORDINARY["causal_weights"]["whole_sum"],
            "`keepdims=True` where `axis=-1, keepdims=True` belongs",
        ),
        (
            "layer_norm_backward",
            ORDINARY["layer_norm_backward"]["batch_axis"],
            "`axis=0` where `axis=-1` belongs",
        ),
        (
            "gelu_backward",
            ORDINARY["gelu_backward"]["tanh_of_x"],
            "`x` where `c * (x + 0.044715 * x ** 3)` belongs",
        ),
        (
            "softmax_backward",
            OTHERS["third"]["softmax_backward"]["answer_3"],
            "-1 × `p * row`. It should count once. There is a term too many: -2 × `p * dp * p`.",
        ),
        (
            "cross_entropy_backward",
            OTHERS["third"]["cross_entropy_backward"]["answer_3"],
            "`(p - one_hot) * one_hot` where `p - one_hot` belongs",
        ),
        (
            "linear_backward",
            "return np.ones_like(dy) @ w, dy.T @ x, dy.sum(axis=0)",
            "`np.ones_like(dy)` where `dy` belongs",
        ),
        (
            "attention_dv",
            OTHERS["third"]["attention_dv"]["answer_3"],
            "`w.T[:, -1:] @ dz[-1:]` where `w.T @ dz` belongs",
        ),
        (
            "layer_norm",
            "mean = x.mean(axis=-1, keepdims=True)\n"
            "v = ((x - mean) ** 2)[..., 1:].mean(axis=-1, keepdims=True)\n"
            "return gamma * (x - mean) / np.sqrt(v + eps) + beta",
            "`((x - mean) ** 2)[..., 1:].mean(",
        ),
        (
            "encoder_layer_backward",
            OTHERS["third"]["encoder_layer_backward"]["answer_3"],
            "goes straight into the sum. A term of the sum is counted wrongly: 0.3333 × `dq`",
        ),
        (
            "causal_weights",
            ORDINARY["causal_weights"]["one"],
            "No query may see a later key",
        ),
        (
            "linear_backward",
            "return dy @ w, (dy.T @ x / len(x)).T, dy.sum(axis=0)",
            "It is transposed, and 0.25 times the result.",
        ),
        ("linear_backward", OTHERS["third"]["linear_backward"]["answer_3"], "It is 1 everywhere"),
        ("scaled_scores", "return q @ k.T * np.nan", "Look for a division by 0"),
        ("scaled_scores", "return (q @ k.T).sum(axis=0)", "It has too few axes"),
        ("scaled_scores", "return q[:, None, :] * k", "It has too many axes"),
        (
            "residual_backward",
            LEARNERS["second"]["residual_backward"]["dz_as_well"],
            "There is a term too many: 1 × `dz`.",
        ),
        (
            "gelu_backward",
            LEARNERS["first"]["gelu_backward"]["dy_for_first_term"],
            "`dy * 0.5 * (1 + t) + 0.5 * x",
        ),
        (
            "residual_backward",
            LEARNERS["first"]["residual_backward"]["multiplied"],
            "dsum * f_backward(dsum)",
        ),
        (
            "gelu_backward",
            LEARNERS["first"]["gelu_backward"]["cube_slope_left"],
            "c * (x + 3 * 0.044715",
        ),
        (
            "split_join",
            LEARNERS["first"]["split_join"]["heads_first"],
            "the axes are in another order",
        ),
        (
            "linear_backward",
            ORDINARY["linear_backward"]["db_keeps"],
            "an axis of size 1 too many",
        ),
        (
            "encoder_layer_backward",
            LEARNERS["first"]["encoder_layer_backward"]["not_unpacked"],
            "a first axis too many",
        ),
    ],
)
def test_what_differs_from_the_solution_is_said(name: str, body: str, says: str) -> None:
    (result, *_) = wrong(name, body)
    assert result.mistake is not None
    assert says in result.mistake.en
    assert any("가" <= letter <= "힣" for letter in result.mistake.ko)


@pytest.mark.parametrize("name", EXERCISES)
def test_numbers_of_no_mistake_are_not_named(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(7).standard_normal
    right = right_results(name)

    def random(*arguments: Any) -> Any:
        return tuple(draw(each.shape) for each in right) if len(right) > 1 else draw(right[0].shape)

    rules = {each: rule for each, (rule, *_) in read(name).get("invariants", {}).items()}
    for result in diagnose(name, random):
        assert not result.passed
        if result.mistake is not None:
            assert result.mistake.en.startswith(rules[result.name]["says"][0].partition("{}")[0])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("cross_entropy_backward", "return (p - np.eye(7)[target]) / 5"),
        ("cross_entropy_backward", "return (p - np.eye(p.shape[-1])[target]) / 5"),
        ("scaled_scores", "return q @ k.T / 3**0.5"),
        (
            "layer_norm",
            "mean = x.sum(-1, keepdims=True) / 7\n"
            "v = ((x - mean) ** 2).sum(-1, keepdims=True) / 7\n"
            "return gamma * (x - mean) / np.sqrt(v + eps) + beta",
        ),
        (
            "layer_norm",
            "return gamma * (x - x.mean(-1, keepdims=True)) "
            "/ np.sqrt(x.var(-1, keepdims=True) + 0.1) + beta",
        ),
        (
            "split_join",
            "return x.reshape(3, 4, 2, 5).swapaxes(1, 2), z.swapaxes(1, 2).reshape(3, 4, 10)",
        ),
    ],
)
def test_a_size_in_the_code_is_noticed(name: str, body: str) -> None:
    results = wrong(name, body)
    assert results
    assert all(r.mistake is not None and "right for these arrays" in r.mistake.en for r in results)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_is_right_for_arrays_of_other_shapes_too(name: str) -> None:
    assert {*read(name)["again"]} <= {*read(name)["given"]}
    assert all(result.passed for result in diagnose(name, solution(name)))


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ("operands could not be broadcast together with shapes (5,7) (5,)", "keepdims=True"),
        ("operands could not be broadcast together with shapes (4,7) (4,5)", ".T"),
        ("'float' object cannot be interpreted as an integer", "//"),
        ("only 0-dimensional arrays can be converted to Python scalars", "np.tanh"),
        ("output array is read-only", "copy one first"),
        ("assignment destination is read-only", "copy one first"),
        ("weights is masked or complex; expected an array of real numbers", ".filled(0)"),
        ("matmul: Input operand 1 has a mismatch in its core dimension 0", ".T"),
        ("The truth value of an array with more than one element is ambiguous", "np.where"),
    ],
)
def test_common_errors_come_with_advice(about: str, says: str) -> None:
    text = advice(about)
    assert text is not None
    assert says in text.en
    assert says.split()[0] in text.ko or "복사" in text.ko
    assert advice("invalid syntax") is None


def test_every_change_is_of_one_part_and_runs_as_a_function_body() -> None:
    found = list(mutants("row = (dp * p).sum(axis=-1, keepdims=True)\nreturn p * (dp - row)"))
    assert ("dp - row", "dp + row") in {(old, new) for old, new, _ in found}
    assert all(body.count("return") == 1 and old != new for old, new, body in found)
    assert len({body for _, _, body in found}) > 40


def test_a_product_with_a_sum_is_a_sum_of_products() -> None:
    assert terms("d = (a - b) * (c + e)\nreturn d, a / (b + c)") == [
        ["a * c", "a * e", "b * c", "b * e"],
        ["a / (b + c)"],
    ]
