"""Put functions that you wrote for `pellucid exercise` into transformer.py, and train it.

    pellucid exercise --train
    python examples/your_transformer.py exercises

Each function of an exercise has its place in transformer.py; `PLACES` puts it there, with the
shapes that the exercise gives it: most read rows, so the sentences of a batch are joined into rows
first. What you have not solved stays as it is. ReLU has no place of its own: where the network of
the exercise is, its ReLU is there.
"""

from __future__ import annotations

import importlib.util
import io
import re
import runpy
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pellucid.apps.teach.exercise import diagnose
from pellucid.system.language import Language, Text

Function = Callable[..., Any]


def rows(x: Any) -> Any:
    """(…, E) to (tokens, E), as the exercises have it."""
    return x.reshape(-1, x.shape[-1])


def each_head(f: Function, *stacks: Any) -> list[Any]:
    """Call f for every head of every sentence, and stack its results."""
    flat = [x.reshape(-1, *x.shape[-2:]) for x in stacks]
    results = [f(*parts) for parts in zip(*flat, strict=True)]
    several = results if isinstance(results[0], tuple) else [(result,) for result in results]
    around = stacks[0].shape[:-2]
    return [np.stack(one).reshape(*around, *one[0].shape) for one in zip(*several, strict=True)]


def zeros(p: Any) -> Any:
    """Return zeros for parameters: the gradient of a part that a function leaves out."""
    return {k: zeros(each) for k, each in p.items()} if isinstance(p, dict) else np.zeros_like(p)


def cast(f: Function) -> Function:
    """Return f with its results in the precision of its first argument."""

    def run(first: Any, *rest: Any) -> Any:
        found = f(first, *rest)
        if isinstance(found, tuple):
            return tuple(np.asarray(each, first.dtype) for each in found)
        return np.asarray(found, first.dtype)

    return run


def softmax_backward(t: Any, f: Function) -> None:
    plain = t.softmax

    def softmax(a: Any) -> Any:
        w, _ = plain(a)
        return w, lambda dw: f(rows(dw), rows(w)).reshape(w.shape)

    t.softmax = softmax


def cross_entropy_backward(t: Any, f: Function) -> None:
    def loss_and_gradients(p: Any, source: Any, target: Any) -> Any:
        scores, backward = t.transformer(p, source, target[:, :-1])
        following = target[:, 1:]
        real = following != t.PAD
        w, _ = t.softmax(scores)
        dscores = np.zeros_like(scores)
        dscores[real] = f(w[real], following[real])
        right = np.take_along_axis(w, following[..., None], axis=-1)[..., 0]
        return -np.log(right[real]).mean(), backward(dscores)

    t.loss_and_gradients = loss_and_gradients


def linear_backward(t: Any, f: Function) -> None:
    def linear(p: Any, x: Any) -> Any:
        def backward(dy: Any) -> Any:
            dx, dw, db = f(rows(dy), rows(x), p["W"].T)
            return dx.reshape(x.shape), {"W": dw.T, "b": db}

        return x @ p["W"] + p["b"], backward

    t.linear = linear


def relu_backward(t: Any, f: Function) -> None:
    def relu(x: Any) -> Any:
        return np.maximum(x, 0), lambda dy: f(rows(dy), rows(x)).reshape(x.shape)

    t.gelu = relu


def gelu_backward(t: Any, f: Function) -> None:
    plain = t.gelu

    def gelu(x: Any) -> Any:
        y, _ = plain(x)
        return y, lambda dy: f(rows(dy), rows(x)).reshape(x.shape)

    t.gelu = gelu


def layer_norm(t: Any, f: Function) -> None:
    plain = t.layer_norm

    def norm(p: Any, x: Any) -> Any:
        y, backward = plain(p, x)
        return f(rows(x), p["gamma"], p["beta"], 1e-5).reshape(y.shape), backward

    t.layer_norm = norm


def layer_norm_backward(t: Any, f: Function) -> None:
    plain = t.layer_norm

    def norm(p: Any, x: Any) -> Any:
        std = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
        x_hat = (x - x.mean(axis=-1, keepdims=True)) / std

        def backward(dy: Any) -> Any:
            dx, dgamma, dbeta = f(rows(dy), rows(x_hat), rows(std), p["gamma"])
            return dx.reshape(x.shape), {"gamma": dgamma, "beta": dbeta}

        return plain(p, x)[0], backward

    t.layer_norm = norm


def in_attention(t: Any, name: str, f: Function) -> None:
    """Put one of the four functions of attention into its place."""
    t.attention_parts = {**getattr(t, "attention_parts", {}), name: f}
    parts = t.attention_parts

    def attention(q: Any, k: Any, v: Any, masked: Any) -> Any:
        scale = q.shape[-1] ** -0.5
        if "scaled_scores" in parts:
            (a,) = each_head(parts["scaled_scores"], q, k)
        else:
            a = scale * (q @ k.swapaxes(-1, -2))
        if "causal_weights" in parts and masked.ndim == 2:
            (w,) = each_head(parts["causal_weights"], a)

            def softmax_backward(dw: Any) -> Any:
                return w * (dw - (dw * w).sum(axis=-1, keepdims=True))

        else:
            w, softmax_backward = t.softmax(np.where(masked, -np.inf, a))
        t.seen["weights"] = w

        def backward(dz: Any) -> Any:
            if "attention_dv" in parts:
                (dv,) = each_head(parts["attention_dv"], dz, w)
            else:
                dv = w.swapaxes(-1, -2) @ dz
            if "attention_dq_dk" in parts:
                dq, dk = each_head(parts["attention_dq_dk"], dz, q, k, v, w)
            else:
                da = softmax_backward(dz @ v.swapaxes(-1, -2))
                dq, dk = scale * (da @ k), scale * (da.swapaxes(-1, -2) @ q)
            return dq, dk, dv

        return w @ v, backward

    t.attention = attention


def split_join(t: Any, f: Function) -> None:
    t.split = lambda x: f(x, np.zeros_like(x).reshape(*x.shape[:2], t.H, -1).swapaxes(1, 2), t.H)[0]
    t.join = lambda z: f(np.zeros((z.shape[0], z.shape[2], t.E), z.dtype), z, t.H)[1]


def residual_backward(t: Any, f: Function) -> None:
    """In the decoder: each of its three norms, with the part before it."""

    def decoder_layer(p: Any, x: Any, memory: Any, future: Any, padding: Any) -> Any:
        a, self_backward = t.multi_head(p["self"], x, x, future)
        z, norm_1_backward = t.layer_norm(p["norm_1"], x + a)
        b, cross_backward = t.multi_head(p["cross"], z, memory, padding)
        c, norm_2_backward = t.layer_norm(p["norm_2"], z + b)
        h, ffn_backward = t.feed_forward(p["ffn"], c)
        y, norm_3_backward = t.layer_norm(p["norm_3"], c + h)

        def backward(dy: Any) -> Any:
            g = zeros(p)
            seen = {"memory": np.zeros_like(memory)}

            def kept(name: str, way: Function) -> Function:
                def run(d: Any) -> Any:
                    dx, g[name] = way(d.reshape(y.shape))
                    return dx

                return run

            def cross(d: Any) -> Any:
                dz, dk, dv, g["cross"] = cross_backward(d)
                seen["memory"] = dk + dv
                return dz

            def own(d: Any) -> Any:
                dx, dk, dv, g["self"] = self_backward(d)
                return dx + dk + dv

            dc = f(dy, kept("norm_3", norm_3_backward), kept("ffn", ffn_backward))
            dz = f(dc, kept("norm_2", norm_2_backward), cross)
            dx = f(dz, kept("norm_1", norm_1_backward), own)
            return dx, seen["memory"], g

        return y, backward

    t.decoder_layer = decoder_layer


def feed_forward_backward(t: Any, f: Function) -> None:
    """In the encoder, whose networks then have ReLU."""
    layer = t.encoder_layer

    def network(p: Any, x: Any) -> Any:
        h = x @ p["first"]["W"] + p["first"]["b"]
        y = np.maximum(h, 0) @ p["second"]["W"] + p["second"]["b"]

        def backward(dy: Any) -> Any:
            w1, w2 = p["first"]["W"].T, p["second"]["W"].T
            dx, dw1, db1, dw2, db2 = f(rows(dy), rows(x), rows(h), w1, w2)
            g = {"first": {"W": dw1.T, "b": db1}, "second": {"W": dw2.T, "b": db2}}
            return dx.reshape(x.shape), g

        return y, backward

    def encoder_layer(p: Any, x: Any, padding: Any) -> Any:
        plain, t.feed_forward = t.feed_forward, network
        try:
            return layer(p, x, padding)
        finally:
            t.feed_forward = plain

    t.encoder_layer = encoder_layer


def encoder_layer_backward(t: Any, f: Function) -> None:
    def encoder_layer(p: Any, x: Any, padding: Any) -> Any:
        a, attention_backward = t.multi_head(p["attention"], x, x, padding)
        z, norm_1_backward = t.layer_norm(p["norm_1"], x + a)
        h, ffn_backward = t.feed_forward(p["ffn"], z)
        y, norm_2_backward = t.layer_norm(p["norm_2"], z + h)

        def backward(dy: Any) -> Any:
            g = zeros(p)

            def kept(name: str, way: Function) -> Function:
                def run(d: Any) -> Any:
                    *dx, g[name] = way(d)
                    return dx[0] if len(dx) == 1 else tuple(dx)

                return run

            parts = (norm_1_backward, norm_2_backward, ffn_backward, attention_backward)
            names = ("norm_1", "norm_2", "ffn", "attention")
            return f(dy, *map(kept, names, parts)), g

        return y, backward

    t.encoder_layer = encoder_layer


PLACES: dict[str, Callable[[Any, Function], None]] = {
    "softmax_backward": softmax_backward,
    "cross_entropy_backward": cross_entropy_backward,
    "linear_backward": linear_backward,
    "gelu_backward": gelu_backward,
    "layer_norm_backward": layer_norm_backward,
    "layer_norm": layer_norm,
    "scaled_scores": lambda t, f: in_attention(t, "scaled_scores", f),
    "causal_weights": lambda t, f: in_attention(t, "causal_weights", f),
    "attention_dv": lambda t, f: in_attention(t, "attention_dv", f),
    "attention_dq_dk": lambda t, f: in_attention(t, "attention_dq_dk", f),
    "split_join": split_join,
    "residual_backward": residual_backward,
    "encoder_layer_backward": encoder_layer_backward,
    "feed_forward_backward": feed_forward_backward,
}
"""By exercise: what puts its function into transformer.py. In the order in which they are put."""


def built(functions: Mapping[str, Function], also: Iterable[Callable[[Any], None]] = ()) -> Any:
    """Return transformer.py as a module of its own, with functions of the exercises in it."""
    path = Path(__file__).with_name("transformer.py")
    spec = importlib.util.spec_from_file_location("your_own_transformer", path)
    assert spec
    assert spec.loader
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, place in PLACES.items():
        if name in functions:
            place(module, cast(functions[name]))
    for change in also:
        change(module)
    return module


def slopes(t: Any, seed: int) -> list[str]:
    """Return a new model's slope by hand and by difference, as transformer.py prints them."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        t.check(np.random.default_rng(seed + 1))
    return re.findall(r"-?\d+\.\d+|-?inf|nan", printed.getvalue())


def trained(
    t: Any, seed: int = 0, say: Callable[[str], None] = print, language: Language = "en"
) -> dict[str, Any]:
    """Train as transformer.py does; return its slopes, its last loss and how many are right."""
    by_hand, by_difference = slopes(t, seed)
    slope = Text(
        f"slope of the loss by hand {by_hand}, by difference {by_difference}",
        f"손실의 기울기: 손으로 {by_hand}, 차분으로 {by_difference}",
    )
    say(slope.to(language))
    random = np.random.default_rng(seed)
    digits = random.integers(1, 10, (40_000, 6)) * random.integers(0, 2, (40_000, 6))
    numbers = np.maximum(digits @ 10 ** np.arange(6), 1)
    with redirect_stdout(printed := io.StringIO()):
        p = t.train(numbers[numbers % 7 != 3], random)
    first, *_, last = re.findall(r"loss (\S+)", printed.getvalue())
    loss = Text(
        f"loss {first} after 50 steps, {last} after {t.STEPS}",
        f"손실 {first} (50스텝), {last} ({t.STEPS}스텝)",
    )
    say(loss.to(language))
    new = np.unique(numbers[numbers % 7 == 3])
    answers = zip(new, t.answer(p, new), strict=True)
    right = sum("".join(t.words(n, t.KOREAN)) == answer for n, answer in answers)
    result = Text(
        f"right: {right:,} of {len(new):,} numbers that it was never trained on",
        f"학습한 적 없는 수 {len(new):,}개 가운데 {right:,}개를 맞혔습니다",
    )
    say(result.to(language))
    found = {"by_hand": float(by_hand), "by_difference": float(by_difference)}
    return {**found, "loss": float(last), "right": right, "of": len(new)}


def solved(folder: Path) -> dict[str, Function]:
    """Return the functions in a folder of exercises that are right, by exercise."""
    found = {}
    sys.path.insert(0, str(folder))  # one may import another
    try:
        for name in PLACES:
            path = folder / f"{name}.py"
            with suppress(Exception):  # `pellucid exercise NAME` says what is wrong with it
                function = runpy.run_path(str(path))[name]
                if all(result.passed for result in diagnose(name, function)):
                    found[name] = function
    finally:
        sys.path.remove(str(folder))
    return found


def main(folder: Path, language: Language = "en") -> int:
    """Train with what is right in a folder of exercises."""
    yours = solved(folder)
    names = ", ".join(yours) or Text("none yet", "아직 없음").to(language)
    print(f"{Text('yours', '내 함수').to(language)}: {names} ({len(yours)}/{len(PLACES)})")
    print(Text("training, about half a minute", "30초쯤 학습합니다").to(language), flush=True)
    trained(built(yours), language=language)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(
            "expected the folder of your exercises: python examples/your_transformer.py exercises"
        )
    sys.exit(main(Path(sys.argv[1])))
