"""The one-file Transformer: its loss and gradients are the library's, and it learns its task."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pellucid.core.batch import Batch, Packed
from pellucid.models import Seq2Seq, Seq2SeqConfig

SCRIPT = Path(__file__).parents[2] / "examples" / "transformer.py"
SLOW = os.environ.get("PELLUCID_SLOW_TESTS", "") not in ("", "0")


@pytest.fixture(scope="module")
def file() -> Iterator[ModuleType]:
    """The example, imported without the number of threads that it sets for its own process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
        import transformer

        yield transformer


def named(p: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the example's arrays under the library's names, in its layout."""
    found = {"source.tokens.weight": p["source"], "target.tokens.weight": p["target"]}

    def affine(name: str, part: dict[str, np.ndarray]) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = part["W"].T, part["b"]

    affine("output", p["output"])
    theirs = {"attention": "self_attn", "self": "self_attn", "cross": "multihead_attn"}
    for stack in ("encoder", "decoder"):
        for n, layer in p[stack].items():
            at = f"{stack}.layers.{n}"
            affine(f"{at}.linear1", layer["ffn"]["first"])
            affine(f"{at}.linear2", layer["ffn"]["second"])
            for name, part in layer.items():
                if name.startswith("norm"):
                    norm = f"{at}.{name.replace('_', '')}"
                    found[f"{norm}.weight"], found[f"{norm}.bias"] = part["gamma"], part["beta"]
                elif name in theirs:
                    heads = f"{at}.{theirs[name]}"
                    packed = {key: [part[each][key] for each in "qkv"] for key in "Wb"}
                    found[f"{heads}.in_proj_weight"] = np.hstack(packed["W"]).T
                    found[f"{heads}.in_proj_bias"] = np.hstack(packed["b"])
                    affine(f"{heads}.out_proj", part["out"])
    return found


def move(p: dict[str, Any], draws: np.random.Generator) -> None:
    """Move every parameter, so that no weight of a norm is 1 and no bias 0."""
    for value in p.values():
        if isinstance(value, dict):
            move(value, draws)
        else:
            value += 0.1 * draws.standard_normal(value.shape)


def packed(rows: np.ndarray, padding: int) -> Packed:
    return Packed.of([row[row != padding].tolist() for row in rows])


def test_its_loss_and_every_gradient_equal_the_librarys(file: ModuleType) -> None:
    draws = np.random.default_rng(3)
    p = file.initial(draws, np.float64)
    move(p, draws)
    config = Seq2SeqConfig(
        len(file.SOURCE),
        len(file.TARGET),
        d_model=file.E,
        num_attention_heads=file.H,
        ffn_dim=file.F,
        encoder_layers=file.LAYERS,
        decoder_layers=file.LAYERS,
        activation_function="gelu_tanh",
        final_norm=False,
        tie_embeddings="none",
        dropout=0.0,
    )
    model = Seq2Seq(config, dtype=np.float64)
    model.load_state_dict(named(p))
    source, target = file.batch([456_788, 7, 60_000, 300_023, 999_999])
    batch = Batch(packed(source, file.PAD), packed(target, file.PAD))

    loss, g = file.loss_and_gradients(p, source, target)
    gradients = named(g)
    wanted, wanted_backward = model.loss(batch)
    wanted_backward(1 / wanted.tokens)

    np.testing.assert_allclose(loss, wanted.nats / wanted.tokens, rtol=1e-12)
    theirs = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert gradients.keys() == theirs.keys()
    for name, gradient in theirs.items():
        np.testing.assert_allclose(gradients[name], gradient, rtol=1e-10, atol=1e-13, err_msg=name)


def test_it_is_numpy_alone_and_short() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    assert set(re.findall(r"^import (\w+)", text, re.MULTILINE)) == {"os", "sys", "numpy"}
    assert not re.search(r"^from ", text, re.MULTILINE)
    assert len(text.splitlines()) <= 366


@pytest.mark.parametrize(
    ("n", "english", "korean"),
    [
        (7, "seven", "칠"),
        (10, "ten", "십"),
        (21, "twenty one", "이십일"),
        (110, "one hundred ten", "백십"),
        (10_000, "ten thousand", "만"),
        (11_111, "eleven thousand one hundred eleven", "만천백십일"),
        (110_001, "one hundred ten thousand one", "십일만일"),
        (300_020, "three hundred thousand twenty", "삼십만이십"),
    ],
)
def test_numbers_in_words(file: ModuleType, n: int, english: str, korean: str) -> None:
    assert " ".join(file.words(n, file.ENGLISH)) == english
    assert "".join(file.words(n, file.KOREAN)) == korean


def test_the_check_prints_two_equal_slopes(
    file: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    file.check(np.random.default_rng(1))
    by_hand, by_difference = map(float, re.findall(r"-?\d+\.\d+", capsys.readouterr().out))
    assert by_hand == pytest.approx(by_difference, rel=1e-5)
    assert abs(by_hand) > 0.1


def test_a_hundred_steps_bring_the_loss_down(
    file: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(file, "STEPS", 100)
    p = file.train(np.arange(1, 1000), np.random.default_rng(0))
    first, last = map(float, re.findall(r"loss (\S+)", capsys.readouterr().out))
    assert last < 0.5 * first < 1.0  # at first it is about log 16 = 2.8
    assert len(file.answer(p, [5, 867])) == 2


def test_it_prints_where_each_token_looked(
    file: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    p = file.initial(np.random.default_rng(0))
    file.look(p, 456_788)
    weights = file.seen["weights"]  # cross-attention's, (N, H, L, S)
    assert weights.shape == (1, file.H, 12, 9)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [token for token, _ in lines] == [*"사십오만육천칠백팔십팔", "<end>"]
    shades = [[cell[0] for cell in row.split()] for _, row in lines]
    expected = np.array([*"·░▒▓█"])[(4.99 * weights[0].mean(axis=0)).astype(int)]
    assert shades == expected.tolist()


@pytest.mark.skipif(not SLOW, reason="takes half a minute; set PELLUCID_SLOW_TESTS=1")
@pytest.mark.parametrize("script", [SCRIPT, SCRIPT.with_suffix(".ko.py")], ids=["en", "ko"])
def test_it_translates_numbers_that_it_was_never_trained_on(script: Path) -> None:
    command = [sys.executable, script, "60000"]
    text = subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout
    (line,) = [line for line in text.splitlines() if len(re.findall(r"\b\d{4}", line)) == 2]
    right, among = sorted(map(int, re.findall(r"\d{4}", line)))
    assert right > 0.98 * among > 3000
    assert "60,000: sixty thousand → 육만 ✓\n육\t" in text
