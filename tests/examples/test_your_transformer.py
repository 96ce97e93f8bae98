"""The functions of the exercises in transformer.py: in their places they compute the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import your_transformer
from pellucid.apps.teach import course_file
from pellucid.apps.teach.exercise import EXERCISES, read, solution
from your_transformer import PLACES, built, main

RELU = ("feed_forward_backward",)
"""Exercises with ReLU, where the file has GELU."""


def gradients(functions: Mapping[str, Any]) -> tuple[float, np.ndarray]:
    """Return the loss and all gradients of transformer.py with some functions in it, in float64."""
    t = built(functions)
    p = t.initial(np.random.default_rng(3), np.float64)
    loss, g = t.loss_and_gradients(p, *t.batch([7, 456_788, 60_000]))
    return float(loss), np.concatenate([each.ravel() for each in t.arrays(g)])


def test_every_exercise_has_a_place_but_relu() -> None:
    assert {*EXERCISES} - {*PLACES} == {"relu_backward"}
    assert course_file("your_transformer.py").samefile(your_transformer.__file__)


@pytest.mark.parametrize("name", [name for name in PLACES if name not in RELU])
def test_a_solution_in_its_place_changes_nothing(name: str) -> None:
    loss, grads = gradients({})
    own_loss, own = gradients({name: solution(name)})
    assert own_loss == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(own, grads, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", PLACES)
def test_what_is_put_there_is_used(name: str) -> None:
    def unused(*arguments: Any) -> Any:
        raise AssertionError(name)

    with pytest.raises(AssertionError, match=name):
        gradients({name: unused})


def test_all_solutions_at_once_have_the_slope_of_a_difference(
    capsys: pytest.CaptureFixture[str],
) -> None:
    t = built({name: solution(name) for name in PLACES})
    t.check(np.random.default_rng(1))
    by_hand, by_difference = map(float, capsys.readouterr().out.replace(",", "").split()[3::3])
    assert by_hand == pytest.approx(by_difference, rel=1e-5)


def test_the_weights_of_an_attention_of_ones_own_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = []
    for functions in ({}, {"scaled_scores": solution("scaled_scores")}):
        t = built(functions)
        t.look(t.initial(np.random.default_rng(3), np.float64), 456_788)
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert shown[0].count("four") == 12  # a line for each token, and for the end


@pytest.mark.parametrize("mistake", read("softmax_backward")["mistakes"])
def test_a_mistake_in_its_place_gives_another_gradient(mistake: str) -> None:
    wrong = solution("softmax_backward", read("softmax_backward")["mistakes"][mistake]["change"])
    with np.errstate(all="ignore"):
        own = gradients({"softmax_backward": wrong})[1]
    assert not np.allclose(own, gradients({})[1], rtol=1e-3)


def test_it_trains_with_what_is_right_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    head = "import numpy as np\n\n\ndef softmax_backward(dp, p):\n"
    right = "    return p * (dp - (dp * p).sum(axis=-1, keepdims=True))\n"
    (tmp_path / "softmax_backward.py").write_text(head + right, "utf-8")
    (tmp_path / "gelu_backward.py").write_text(
        "def gelu_backward(dy, x):\n    return dy\n", "utf-8"
    )
    (tmp_path / "layer_norm.py").write_text("def layer_norm(:\n", "utf-8")
    (tmp_path / "attention_dv.py").write_text(
        "def attention_dv(dz, w):\n    raise NotImplementedError\n", "utf-8"
    )
    monkeypatch.setattr(
        your_transformer, "trained", lambda t, language: print(t.softmax.__module__)
    )
    assert main(tmp_path) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "yours: softmax_backward (1/14)"
    assert out[-1] == "your_transformer"
    assert main(tmp_path / "none", "ko") == 0
    assert capsys.readouterr().out.startswith("내 함수: 아직 없음 (0/14)")


def test_a_short_training_is_said_in_both_languages() -> None:
    t = built({})
    t.STEPS = 100
    lines: list[str] = []
    found = your_transformer.trained(t, 0, lines.append, "ko")
    assert found["by_hand"] == pytest.approx(found["by_difference"], rel=1e-5)
    assert (
        lines[-1] == f"학습한 적 없는 수 {found['of']:,}개 가운데 {found['right']:,}개를 맞혔습니다"
    )
    assert found["loss"] < 1.0
