"""The exercises: right answers pass, and every known mistake is named, however it is written."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from pellucid.apps.teach.exercise import (
    EXERCISES,
    called,
    diagnose,
    learnt,
    page,
    read,
    right_results,
    scope_of,
    solution,
)
from pellucid.apps.teach.topic import TOPICS

MISTAKES = [(name, mistake) for name in EXERCISES for mistake in read(name)["mistakes"]]
HANGUL = re.compile("[가-힣]")

RIGHT = {
    "softmax_backward": """
        out = np.empty_like(p)
        for n in range(len(p)):
            out[n] = (np.diag(p[n]) - np.outer(p[n], p[n])) @ dp[n]
        return out
        """,
    "cross_entropy_backward": """
        d = p.copy()
        d[np.arange(len(target)), target] -= 1
        return d / target.size
        """,
    "linear_backward": """
        return (
            np.einsum("nf,fe->ne", dy, w), np.einsum("nf,ne->fe", dy, x), np.einsum("nf->f", dy),
        )
        """,
    "relu_backward": "d = dy.copy(); d[x <= 0] = 0; return d",
    "gelu_backward": """
        k = (2 / np.pi) ** 0.5
        u = k * x + k * 0.044715 * x * x * x
        cdf = 1 / (1 + np.exp(-2 * u))
        return dy * (cdf + 2 * x * cdf * (1 - cdf) * k * (1 + 0.134145 * x * x))
        """,
    "layer_norm": """
        rows = []
        for row in x:
            rows.append((row - np.mean(row)) / (np.var(row) + eps) ** 0.5 * gamma + beta)
        return np.array(rows)
        """,
    "layer_norm_backward": """
        E = dy.shape[1]
        d = dy * gamma
        dvar = np.sum(d * x_hat * -0.5 / std**2, axis=1, keepdims=True)
        dmean = np.sum(-d / std, axis=1, keepdims=True)
        dx = d / std + dvar * 2 * x_hat * std / E + dmean / E
        return dx, np.einsum("ne,ne->e", dy, x_hat), np.ones(len(dy)) @ dy
        """,
    "scaled_scores": "return np.einsum('ld,sd->ls', q, k) * q.shape[1] ** -0.5",
    "causal_weights": """
        e = np.tril(np.exp(a))
        return e / np.sum(e, axis=1)[:, None]
        """,
    "attention_dv": "return np.einsum('ls,ld->sd', w, dz)",
    "attention_dq_dk": """
        D = q.shape[1]
        dw = np.einsum("ld,sd->ls", dz, v)
        da = np.array([(np.diag(r) - np.outer(r, r)) @ d for r, d in zip(w, dw)]) / D**0.5
        return np.einsum("ls,sd->ld", da, k), np.einsum("ls,ld->sd", da, q)
        """,
    "split_join": """
        D = x.shape[2] // heads
        split = np.empty((x.shape[0], heads, x.shape[1], D))
        joined = np.empty(x.shape)
        for h in range(heads):
            split[:, h] = x[:, :, h * D : (h + 1) * D]
            joined[:, :, h * D : (h + 1) * D] = z[:, h]
        return split, joined
        """,
    "residual_backward": "g = norm_backward(dz); return np.add(f_backward(g), g)",
    "feed_forward_backward": """
        mask = np.heaviside(h, 0)
        d = np.einsum("nf,fk->nk", dy, w2) * mask
        return d @ w1, (x.T @ d).T, np.ones(len(x)) @ d, ((h * mask).T @ dy).T, np.ones(len(x)) @ dy
        """,
    "encoder_layer_backward": """
        a = norm_2_backward(dy)
        b = norm_1_backward(ffn_backward(a) + a)
        return sum(attention_backward(b), b)
        """,
}
"""Right answers in other code than the solutions'."""

ANY_TERM = "dy * (0.5 * (1 + np.tanh(u)) * {} + 0.5 * {} * {} * {})"
LAYER_NORM_BACKWARD = """
    E = dy.shape[1]
    {}
    return (d - one - x_hat * two) * {}, {}, {}
    """
GRADIENTS = ("(x_hat * dy).sum(0)", "np.einsum('ne->e', dy)")
ROW_MEANS = "one = d.sum(1)[:, None] / E; two = np.einsum('ne,ne->n', d, x_hat)[:, None] / E"


def gelu(first: str = "1", x: str = "x", square: str = "np.cosh(u) ** -2", du: str = "du") -> str:
    """The derivative of GELU, its second factor (1 − tanh²) as 1 / cosh²."""
    return (
        "k = np.sqrt(2 / np.pi); u = k * (x + 0.044715 * x * x * x); du = k + 3 * k * 0.044715 * "
        f"x * x; return {ANY_TERM.format(first, x, square, du)}"
    )


def norm_backward(
    d: str = "d = np.multiply(gamma, dy)",
    means: str = ROW_MEANS,
    by: str = "(1 / std)",
    dgamma: str = GRADIENTS[0],
    dbeta: str = GRADIENTS[1],
) -> str:
    return LAYER_NORM_BACKWARD.format(f"{d}; {means}", by, dgamma, dbeta)


def attention(
    dw: str = "dz @ v.T",
    da: str = "w * dw - w * np.einsum('ls,ls->l', w, dw)[:, None]",
    dq: str = "da @ k / 3**0.5",
    dk: str = "(q.T @ da).T / 3**0.5",
) -> str:
    return f"dw = {dw}; da = {da}; return {dq}, {dk}"


def norm(
    mean: str = "x.mean(1)",
    var: str = "x.var(1)",
    y: str = "(x - m) / s * gamma + beta",
    s: str = "(v + eps) ** 0.5",
) -> str:
    shape = "[:, None]"
    return f"m = {mean}{shape}; v = {var}{shape}; s = {s}; return {y}"


DW = "np.einsum('na,nb->ab', {}, {})"


def feed(
    mask: str = "(h >= 0)", a: str = "h * (h >= 0)", dw: str = DW, db: str = "{}.sum(0)"
) -> str:
    dws = dw.format("d", "x"), dw.format("dy", "a")
    dbs = db.format("d"), db.format("dy")
    return f"a = {a}; d = dy @ w2 * {mask}; return d @ w1, {dws[0]}, {dbs[0]}, {dws[1]}, {dbs[1]}"


def split(first: str = "", second: str = "") -> str:
    first = first or "np.stack(np.split(x, heads, 2), 1)"
    return f"return {first}, {second or 'np.concatenate([z[:, 0], z[:, 1]], axis=2)'}"


DOTS = "np.array([[np.dot(i, j) for j in k] for i in q])"
LOWER = "np.tril(np.ones((5, 5)))"
OTHERWISE = {
    "softmax_backward": {
        "row_missing": "return np.einsum('ns,ns->ns', dp, p)",
        "row_sum_left_out": "return np.einsum('ns,ns->ns', dp, p - p**2)",
        "row_added": "return p * dp + p * np.einsum('ns,ns->n', p, dp)[:, None]",
        "dp_missing": "return p - p * p",
        "factor_missing": "return dp - np.einsum('ns,ns->n', p, dp)[:, None]",
        "wrong_axis": "return p * dp - p * np.einsum('ns,ns->s', p, dp)",
        "whole_array": "return p * dp - p * np.vdot(p, dp)",
        "mean": "return p * dp - p * np.average(p * dp, axis=1)[:, None]",
        "sum_without_p": "return p * dp - p * np.sum(dp, 1)[:, None]",
    },
    "cross_entropy_backward": {
        "not_divided": "p = p.copy(); p[range(5), target] -= 1; return p",
        "divided_by_all": "d = p - np.eye(7)[target]; return d / p.shape[0] / p.shape[1]",
        "at_the_probabilities": "d = 0 * p; r = range(5); d[r, target] = -1 / p[r, target]; "
        "return d / 5",
        "p_missing": "d = 0 * p; d[range(5), target] = -0.2; return d",
        "one_everywhere": "return p / 5 - 0.2",
    },
    "linear_backward": {
        "dw_transposed": "return dy @ w, np.einsum('nf,ne->ef', dy, x), dy.sum(0)",
        "dw_mean": "return dy @ w, np.mean(dy[:, :, None] * x[:, None], axis=0), dy.sum(0)",
        "db_not_summed": "return dy @ w, dy.T @ x, 1 * dy",
        "db_mean": "return dy @ w, dy.T @ x, np.add.reduce(dy) / 4",
        "db_axis": "return dy @ w, dy.T @ x, np.einsum('nf->n', dy)",
    },
    "relu_backward": {
        "dy_missing": "return np.where(x > 0, 1, 0)",
        "value_for_slope": "return np.where(x > 0, x * dy, 0)",
        "sign_of_dy": "return np.maximum(dy, 0)",
        "other_side": "return np.where(x < 0, dy, 0)",
        "everything": "return 1 * dy",
    },
    "gelu_backward": {
        "second_term": gelu(x="0"),
        "first_term": gelu(first="0"),
        "inner_derivative": gelu(du="1"),
        "three": gelu(du="(2 * k + du) / 3"),
        "constant": gelu(du="du / k"),
        "square": gelu(square="(1 - np.tanh(u))"),
        "factor_x": gelu(x="1"),
        "dy_missing": "dy = 1; " + gelu(),
        "exact": "from math import erf, pi; "
        "cdf = 0.5 + np.array([erf(z / 2**0.5) for z in x.flat]) / 2; "
        "return dy * (cdf.reshape(5, 7) + x * np.exp(-x * x / 2) / (2 * pi) ** 0.5)",
    },
    "layer_norm": {
        "batch_norm": "x = x - x.sum(0) / 5; v = np.einsum('ne,ne->e', x, x) / 5; "
        "return x / (v + eps) ** 0.5 * gamma + beta",
        "unbiased": norm(var="7 / 6 * x.var(1)"),
        "eps_outside": norm(s="x.std(1)[:, None] + eps"),
        "eps_missing": norm(s="x.std(1)[:, None]"),
        "root_missing": norm(s="v + eps"),
        "mean_not_subtracted": norm(y="x / s * gamma + beta"),
        "gamma_missing": norm(y="(x - m) / s + beta"),
        "beta_missing": norm(y="(x - m) / s * gamma"),
    },
    "layer_norm_backward": {
        "dy_missing": norm_backward("d = np.tile(gamma, (5, 1))"),
        "gamma_missing": norm_backward("d = 1 * dy"),
        "gamma_last": norm_backward("d = 1 * dy", by="(gamma / std)"),
        "statistics_constant": norm_backward(means="one = two = 0"),
        "mean_path": norm_backward(means=ROW_MEANS + "; one = 0"),
        "variance_path": norm_backward(means=ROW_MEANS + "; two = 0"),
        "sum_in_variance": norm_backward(
            means="one = d.mean(1)[:, None]; dvar = -0.5 * d * x_hat / std**2; "
            "two = -dvar * std**2 * 2 / E"
        ),
        "sum_in_mean": norm_backward(means=ROW_MEANS + "; one = d / E"),
        "sum_in_variance_alone": """
            E, centred, dhat = 7, x_hat * std, dy * gamma
            dvar = dhat * -0.5 * centred * std**-3
            dmean = (dhat * -1 / std + dvar * -2 / E * centred).sum(1)[:, None]
            dx = dhat / std + dvar * 2 / E * centred + dmean / E
            return dx, (dy * x_hat).sum(0), dy.sum(0)
            """,
        "sum_in_mean_alone": """
            E, centred, dhat = 7, x_hat * std, dy * gamma
            dvar = (dhat * -0.5 * centred * std**-3).sum(1)[:, None]
            dmean = dhat * -1 / std + dvar * -2 / E * centred
            dx = dhat / std + dvar * 2 / E * centred + dmean / E
            return dx, (dy * x_hat).sum(0), dy.sum(0)
            """,
        "both_sums": """
            E = 7
            centred = x_hat * std
            dhat = dy * gamma
            dvar = dhat * -0.5 * centred * std**-3
            dmean = dhat * -1 / std + dvar * -2 / E * centred
            dx = dhat / std + dvar * 2 / E * centred + dmean / E
            return dx, (dy * x_hat).sum(0), dy.sum(0)
            """,
        "times_std": norm_backward(by="std"),
        "std_missing": norm_backward(by="1"),
        "dgamma_axis": norm_backward(dgamma="np.einsum('ne,ne->n', dy, x_hat)"),
        "dgamma_without_x_hat": norm_backward(dgamma="np.ones(5) @ dy"),
        "not_summed": norm_backward(dgamma="dy * x_hat", dbeta="1 * dy"),
    },
    "scaled_scores": {
        "scale_missing": f"return {DOTS}",
        "without_root": f"return {DOTS} / 3",
        "number_of_keys": f"return {DOTS} / 5**0.5",
        "multiplied": f"return {DOTS} * 3**0.5",
    },
    "causal_weights": {
        "mask_missing": "return np.exp(a) / np.exp(a).sum(1)[:, None]",
        "infinity_times_zero": "b = a - (1 - np.tri(5)) * np.inf; "
        "e = np.exp(b - b.max(1)[:, None]); return e / e.sum(1)[:, None]",
        "zero_scores": f"e = np.exp(a * {LOWER}); return e / e.sum(1)[:, None]",
        "finite": "e = np.exp(np.where(np.tri(5) > 0, a, -20)); return e / e.sum(1)[:, None]",
        "rows_spread": "b = np.where(np.tri(5) > 0, a, -np.inf); e = np.exp((b.T - b.max(1)).T); "
        "return e / e.sum(1)",
        "rows_spread_without_maximum": "e = np.tril(np.exp(a)); return e / e.sum(1)",
        "maximum_spread": "b = np.where(np.tri(5) > 0, a, -np.inf); e = np.exp(b - b.max(1)); "
        "return e / e.sum(1)[:, None]",
        "own_key": "e = np.tril(np.exp(a), -1); return e / e.sum(1)[:, None]",
        "own_key_finite": "e = np.tril(np.exp(a), -1); e[0] = 1; return e / e.sum(1)[:, None]",
        "past_hidden": "e = np.triu(np.exp(a)); return e / e.sum(1)[:, None]",
        "after_softmax": f"e = np.exp(a); return {LOWER} * e / e.sum(1)[:, None]",
        "columns": "e = np.tril(np.exp(a)); return e / e.sum(0)",
    },
    "attention_dv": {
        "transpose": "return np.einsum('ls,sd->ld', w, dz)",
        "dz_missing": "return np.repeat(w.sum(0), 3).reshape(5, 3)",
        "scaled": "return np.einsum('ls,ld->sd', w / 3**0.5, dz)",
    },
    "attention_dq_dk": {
        "row_missing": attention(da="np.einsum('ls,ls->ls', w, dw)"),
        "row_sum_left_out": attention(da="dw * w - dw * w * w"),
        "row_sum_spread": attention(da="w * dw - w * np.einsum('ls,ls->l', w, dw)"),
        "softmax_left_out": attention(da="dw"),
        "scale_missing": attention(dq="da @ k", dk="(q.T @ da).T"),
        "transpose_of_da": attention(dk="np.einsum('ls,sd->ld', da, q) / 3**0.5"),
        "dq_transposed": attention(dq="np.einsum('ls,ld->sd', da, k) / 3**0.5"),
        "swapped": attention(dq="da @ q / 3**0.5", dk="(k.T @ da).T / 3**0.5"),
    },
    "split_join": {
        "reshape_alone": split(first="np.reshape(x, z.shape)"),
        "interleaved": split(first="np.stack([x[:, :, h::heads] for h in range(heads)], 1)"),
        "not_swapped": split(first="np.stack(np.split(x, heads, 2), 2)"),
        "join_reshape_alone": split(second="z.ravel().reshape(x.shape)"),
        "join_interleaved": split(second="np.stack([z[:, 0], z[:, 1]], -1).reshape(x.shape)"),
    },
    "residual_backward": {
        "residual_missing": "return f_backward(norm_backward(dz))",
        "f_missing": "return norm_backward(dz)",
        "dz_past_the_norm": "g = f_backward(norm_backward(dz)); g += dz; return g",
        "f_past_the_norm": "return f_backward(dz) + norm_backward(dz)",
        "norm_missing": "return dz + f_backward(dz)",
        "norm_last": "return norm_backward(f_backward(dz) + dz)",
    },
    "feed_forward_backward": {
        "relu_missing": feed(mask="1"),
        "relu_value": feed(mask="np.where(h > 0, h, 0)"),
        "before_relu": feed(a="h"),
        "transposed": feed(dw="np.einsum('na,nb->ba', {}, {})"),
        "not_summed": feed(db="1 * {}"),
    },
    "encoder_layer_backward": {},
}
"""Every mistake in other code than the exercise's own."""

LAYER = "a = norm_2_backward(dy); b = norm_1_backward({} + ffn_backward(a)); "
LAYER += (
    "grads = attention_backward(b); return {} * b + {} * grads[0] + {} * grads[1] + {} * grads[2]"
)
for kind, terms in {
    "queries_alone": ("a", 1, 1, 0, 0), "queries_left_out": ("a", 1, 0, 1, 1),
    "keys_left_out": ("a", 1, 1, 0, 1), "values_left_out": ("a", 1, 1, 1, 0),
    "residual_1": ("a", 0, 1, 1, 1), "residual_2": ("0", 1, 1, 1, 1),
    "both_residuals": ("0", 0, 1, 1, 1),
}.items():  # fmt: skip
    OTHERWISE["encoder_layer_backward"][kind] = LAYER.format(*terms)
OTHERWISE["encoder_layer_backward"]["norms_swapped"] = (
    "a = norm_1_backward(dy); b = norm_2_backward(a + ffn_backward(a)); "
    "return b + np.sum(attention_backward(b), axis=0)"
)


def written(name: str, body: str) -> Callable[..., Any]:
    """Return a learner's function."""
    scope: dict[str, Any] = {"np": np}
    arguments = ", ".join(read(name)["arguments"])
    exec(f"def f({arguments}):\n{textwrap.indent(textwrap.dedent(body), ' ')}", scope)
    return scope["f"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", EXERCISES)
def test_right_answers_pass_however_they_are_written(name: str) -> None:
    for answer in (solution(name), written(name, RIGHT[name])):
        results = list(diagnose(name, answer))
        assert [result.name for result in results] == read(name)["returns"]
        assert all(result.off < 1e-8 and result.mistake is None for result in results)


@pytest.mark.parametrize(("name", "mistake"), MISTAKES, ids="-".join)
def test_a_mistake_is_named_however_it_is_written(name: str, mistake: str) -> None:
    record = read(name)["mistakes"][mistake]
    for answer in (solution(name, record["change"]), written(name, OTHERWISE[name][mistake])):
        wrong = [result for result in diagnose(name, answer) if not result.passed]
        assert wrong
        for result in wrong:
            assert result.off > 1e-4
            assert result.mistake is not None
            both = zip(record["says"], learnt(name, mistake), strict=True)
            assert list(result.mistake) == [says + more for says, more in both]


@pytest.mark.parametrize(
    ("name", "body", "first", "second"),
    [
        ("softmax_backward", "return dp - (dp * p).mean(1)[:, None]", "factor_missing", "mean"),
        (
            "attention_dv",
            "return np.einsum('ls,sd->ld', w, dz) / np.sqrt(3)",
            "scaled",
            "transpose",
        ),
        ("gelu_backward", "dy = 1; " + gelu(du="(2 * k + du) / 3"), "three", "dy_missing"),
        (
            "attention_dq_dk",
            attention(dq="da @ k", dk="da @ q"),
            "scale_missing",
            "transpose_of_da",
        ),
        (
            "layer_norm_backward",
            norm_backward("d = 1 * dy", means=ROW_MEANS + "; one = d / E"),
            "gamma_missing",
            "sum_in_mean",
        ),
    ],
)
def test_two_mistakes_at_once_are_named(name: str, body: str, first: str, second: str) -> None:
    *_, wrong = [result for result in diagnose(name, written(name, body)) if not result.passed]
    mistakes = read(name)["mistakes"]
    assert wrong.mistake is not None
    assert wrong.mistake.en == (
        f"Two mistakes. {mistakes[first]['says'][0]} {mistakes[second]['says'][0]}"
    )
    assert mistakes[second]["says"][1] in wrong.mistake.ko


def test_mistakes_that_any_answer_may_have_are_named() -> None:
    (right,) = right_results("softmax_backward")
    for wrong, says in (
        (-right, "The sign is reversed"),
        (2.5 * right, "yours is 2.5 times"),
        (1.00002 * right, "yours is 1.00002 times"),
        (right.T, "It is transposed"),
        (0 * right, "It is zero everywhere"),
    ):
        (result,) = diagnose("softmax_backward", lambda dp, p, wrong=wrong: wrong)
        assert result.mistake is not None
        assert says in result.mistake.en
        assert HANGUL.search(result.mistake.ko)


OF_ONE_SHAPE = {
    "softmax_backward": {("dp", "p")},
    "relu_backward": {("dy", "x")},
    "gelu_backward": {("dy", "x")},
    "layer_norm": {("gamma", "beta")},
    "layer_norm_backward": {("dy", "x_hat")},
    "attention_dq_dk": {("dz", "v"), ("q", "k")},  # as many queries as keys: self-attention
    "feed_forward_backward": {("dy", "x")},
}
"""Arguments that can be confused in spite of their shapes."""


@pytest.mark.parametrize("name", EXERCISES)
def test_arguments_of_one_shape_are_few_and_the_page_says_every_shape(name: str) -> None:
    scope = scope_of(name)
    arrays = [each for each in read(name)["arguments"] if isinstance(scope[each], np.ndarray)]
    alike = {(a, b) for a, b in combinations(arrays, 2) if np.shape(scope[a]) == np.shape(scope[b])}
    assert alike == OF_ONE_SHAPE.get(name, set())
    for language in ("en", "ko"):
        lines = page(name, language).splitlines()
        about = " ".join(line.strip(" #") for line in lines if line.startswith("    #"))
        assert all(str(np.shape(scope[each])) in about for each in arrays)


ZERO_SUM = np.outer(np.arange(5), np.arange(7) - 3.0)  # its rows sum to 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (ZERO_SUM, None),
        (np.full((5, 7), np.nan), "Look for a division by 0"),
        (np.ones(3), "It has too few axes"),
        (np.ones((3, 2)), None),
    ],
)
def test_what_is_not_known_is_not_named(wrong: np.ndarray, says: str | None) -> None:
    (result,) = diagnose("softmax_backward", lambda dp, p: wrong)
    assert not result.passed
    assert (result.mistake and result.mistake.en.partition(",")[0].partition(":")[0]) == says


def test_a_list_of_results_is_as_good_as_a_tuple() -> None:
    answer = lambda dy, x, w: [dy @ w, dy.T @ x, dy.sum(0)]  # noqa: E731
    assert all(result.passed for result in diagnose("linear_backward", answer))


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("causal_weights", "e = np.exp(a - 25 * np.triu(np.ones((5, 5)), 1)); "
         "return e / e.sum(1)[:, None]"),
        ("split_join", "N, L, E = x.shape; H = heads; "
         "return x.reshape(N, L, H, -1).swapaxes(1, 2), z.swapaxes(1, 2).reshape(H, L, -1)"),
    ],
)  # fmt: skip
def test_what_is_right_by_chance_alone_is_wrong(name: str, body: str) -> None:
    assert not all(result.passed for result in diagnose(name, written(name, body)))


def test_a_wrong_number_of_results_is_an_error() -> None:
    with pytest.raises(ValueError, match="it returned nothing; expected dx, dw, db"):
        called("linear_backward", lambda dy, x, w: None)
    with pytest.raises(ValueError, match="expected dx, dw, db; it returned 1 results"):
        called("linear_backward", lambda dy, x, w: dy @ w)


def test_masked_and_complex_results_are_refused() -> None:
    for wrong in (
        lambda dy, x: np.ma.masked_where(x <= 0, dy),
        lambda dy, x: dy * (x > 0) + 1j,
    ):
        with pytest.raises(ValueError, match="dx is masked or complex"):
            called("relu_backward", wrong)


def test_arguments_cannot_be_overwritten() -> None:
    def overwrites(dp: np.ndarray, p: np.ndarray) -> np.ndarray:
        dp *= p
        return dp - p * dp.sum(-1, keepdims=True)

    with pytest.raises(ValueError, match="read-only"):
        called("softmax_backward", overwrites)


def test_results_in_another_order_are_named() -> None:
    answer = lambda dz, q, k, v, w: solution("attention_dq_dk")(dz, q, k, v, w)[::-1]  # noqa: E731
    dq, dk = diagnose("attention_dq_dk", answer)
    assert dq.mistake is not None
    assert dk.mistake is not None
    assert dq.mistake.en == "This is dk: return dq, dk."
    assert dk.mistake.en == "This is dq: return dq, dk."
    assert HANGUL.search(dq.mistake.ko)


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_is_complete_in_both_languages(name: str) -> None:
    exercise = read(name)
    assert exercise["topic"] in TOPICS
    assert len(exercise["hints"]) == 3
    words = set(re.findall(r"[a-zA-Z]{4,}", exercise["equation"]))
    assert words <= {"softmax", "tanh", "relu", "LayerNorm", "attention", "Concat", "head", "loss",
                     "logits", "dlogits", "target", "split", "join", "weights"}  # fmt: skip
    mistakes = [mistake["says"] for mistake in exercise["mistakes"].values()]
    for english, korean in (*exercise["hints"], *mistakes):
        assert HANGUL.search(korean)
        assert not HANGUL.search(english)
    for language in ("en", "ko"):
        text = page(name, language)
        compile(text, name, "exec")
        assert max(map(len, text.splitlines())) <= 100
        assert exercise["equation"].split("\n")[0] in text
