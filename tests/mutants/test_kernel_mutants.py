"""`pellucid check` fails where one term of a kernel is wrong, though every op is right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from tests.mutants.test_mutants import PACKAGE, change, copied

MUTANTS = {
    "the mean of a norm's gradient is dropped": (
        "kernels/add_dropout_norm.py",
        "dy[i, j] * gamma[j] - mean_g - x_hat",
        "dy[i, j] * gamma[j] - x_hat",
        "kernel add_dropout_norm (bare)",
    ),
    "a rotation is undone in the wrong direction": (
        "kernels/norm_rotate.py",
        "= b * cos[i, j] - a * sin[i, j]",
        "= b * cos[i, j] + a * sin[i, j]",
        "kernel norm_rotate (rotated alone)",
    ),
    "the 3 of a cube's derivative is missing": (
        "kernels/activations/gelu_tanh.py",
        "_THREE * _CUBIC * z * z)",
        "_CUBIC * z * z)",
        "kernel bias_act_dropout (gelu_tanh)",
    ),
    "1 − σ is missing": (
        "kernels/activations/silu.py",
        "(_ONE + z * rest)",
        "(_ONE + z)",
        "kernel bias_act_dropout (silu)",
    ),
    "a bias is not added in backward": (
        "kernels/bias_act_dropout.py",
        "slope(x[i, j] + bias[j])\n            if",
        "slope(x[i, j])\n            if",
        "kernel bias_act_dropout (gelu)",
    ),
    "what dropout keeps is not scaled in backward": (
        "kernels/dropout.py",
        "x[i, j] * scale if kept",
        "x[i, j] if kept",
        "kernel dropout",
    ),
    "the target's class is not smoothed": (
        "kernels/linear_cross_entropy.py",
        "-= _f(1.0 - smoothing)",
        "-= _f(1.0)",
        "kernel linear_cross_entropy (no bias, smoothed)",
    ),
    "the square of the Gram matrix is left out": (
        "kernels/muon.py",
        "_B * gram[i, j] + _C * square[i, j]",
        "_B * gram[i, j]",
        "kernel muon, global_norm (matrices)",
    ),
    "the loss of smoothing lacks its mean": (
        "kernels/linear_cross_entropy.py",
        "smoothing * (right - mean)",
        "smoothing * right",
        "kernel linear_cross_entropy (no bias, smoothed)",
    ),
    "a sink's gradient lacks Σ P dP": (
        "kernels/flash.py",
        "* inverses[t, head] * means[i]))",
        "* inverses[t, head]))",
        "kernel attention (sinks)",
    ),
    "the largest logit is not taken off before exp": (
        "compiled/beam.py",
        "exp(load(log_p, here + j) - maximum)",
        "exp(load(log_p, here + j))",
        "engine seq2seq, post-norm",
    ),
    "a step is not corrected for v beginning at 0": (
        "kernels/adam.py",
        "np.sqrt(v_i) * unbias2 + eps",
        "np.sqrt(v_i) + eps",
        "kernel adam",
    ),
    "the decay of weights is left out": (
        "kernels/adam.py",
        "gradient[i] * scale + decay * here",
        "gradient[i] * scale",
        "kernel adam, global_norm (decay)",
    ),
    "the norm lacks the last number of a slice": (
        "kernels/global_norm.py",
        "for i in range(here.size):",
        "for i in range(here.size - 1):",
        "kernel adam",
    ),
    "a token that comes twice has one gradient": (
        "kernels/embedding.py",
        "total[row, j] += updates[i, j]",
        "total[row, j] = updates[i, j]",
        "kernel embedding (repeats)",
    ),
    "what smoothing gives to other classes is not divided among them": (
        "kernels/linear_cross_entropy.py",
        "_f(smoothing / vocabulary)",
        "_f(smoothing)",
        "kernel linear_cross_entropy (no bias, smoothed)",
    ),
    "the gradient of a norm's weight lacks the input": (
        "kernels/add_dropout_norm.py",
        "dgamma[j] += dy[i, j] * x_hat[i, j]",
        "dgamma[j] += dy[i, j]",
        "kernel add_dropout_norm (many rows)",
    ),
    "the mean of a root mean square's gradient is not scaled": (
        "kernels/norm_rotate.py",
        "_f(sum_gx * per_number) * r",
        "_f(sum_gx * per_number)",
        "kernel norm_rotate (keys and values)",
    ),
    "a gate's gradient has the gate's input": (
        "kernels/bias_act_dropout.py",
        "dx[i, half + j] = d * value(a)",
        "dx[i, half + j] = d * a",
        "kernel bias_act_dropout (swiglu)",
    ),
    "attention that dropout keeps is not scaled": (
        "kernels/flash.py",
        "context[i, j] * (inverse * keep)",
        "context[i, j] * inverse",
        "kernel attention (causal, bool mask, dropout)",
    ),
    "an answer is ranked by the penalty of a shorter one": (
        "compiled/beam.py",
        "reached / beam.penalties[length + 1]",
        "reached / beam.penalties[length]",
        "engine seq2seq, post-norm",
    ),
    "greedy search goes on after the end": (
        "compiled/beam.py",
        "answers.finished[i] >= beam.size",
        "answers.finished[i] > beam.size",
        "engine seq2seq, post-norm",
    ),
}


ENGINE = "engine"
"""Rows that compare with layers, which may run any kernel."""
IMPORTED = re.compile(
    r"^ *from (pellucid\.(?:kernels|compiled)[\w.]*) import ([\w, ]*)", re.MULTILINE
)


@cache
def imported(file: str) -> list[str]:
    """The files of kernels that one imports."""
    found = IMPORTED.findall((PACKAGE / file).read_text(encoding="utf-8"))
    names = [name for module, words in found for name in (module, *named(module, words))]
    files = [f"{name.removeprefix('pellucid.').replace('.', '/')}.py" for name in names]
    return [path for path in files if (PACKAGE / path).exists()]


def named(module: str, words: str) -> list[str]:
    return [f"{module}.{word.strip()}" for word in words.split(",")]


def needs(fault: str) -> set[str]:
    """The files that may change a fault's row: its kernels', those that they import, its own."""
    file, _, _, row = MUTANTS[fault]
    kernels = row.removeprefix("kernel ").partition(" (")[0].split(", ")
    left = [file, *(f"kernels/{kernel}.py" for kernel in kernels)]
    found: set[str] = set()
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += imported(path)
    return found


def independent(one: str, other: str) -> bool:
    """Whether neither fault can turn the other's row red."""
    if any(MUTANTS[fault][3].startswith(ENGINE) for fault in (one, other)):
        return False
    return MUTANTS[one][0] not in needs(other) and MUTANTS[other][0] not in needs(one)


def groups() -> list[list[str]]:
    """Faults that one process shows: it takes seconds until it compiles its first kernel."""
    found: list[list[str]] = []
    for fault in MUTANTS:
        fitting = (group for group in found if all(independent(fault, one) for one in group))
        group = next(fitting, None)
        if group is None:
            found.append(group := [])
        group.append(fault)
    return found


def checked(package: Path, *rows: str) -> subprocess.CompletedProcess[str]:
    own = {"PYTHONPATH": str(package.parent), "PELLUCID_THREADS": "1", "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, "-m", "pellucid", "--lang", "en", "check", *rows],
        env=os.environ | own,
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("faults", groups(), ids=lambda faults: faults[0])
def test_a_wrong_term_of_a_kernel_turns_a_row_red(
    faults: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = copied(tmp_path)
    rows = [MUTANTS[fault][3] for fault in faults]
    for fault in faults:
        change(package, *MUTANTS[fault][:3])
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    done = checked(package, *rows)
    assert done.returncode == 1, done.stdout + done.stderr
    wrong = [line for line in done.stdout.splitlines() if "WRONG" in line]
    green = [row for row in rows if not any(line.startswith(row) for line in wrong)]
    assert not green, done.stdout


def test_each_fault_is_in_one_process_with_such_as_cannot_turn_its_row_red() -> None:
    assert sorted(fault for group in groups() for fault in group) == sorted(MUTANTS)
    bias, silu = "a bias is not added in backward", "1 − σ is missing"
    norm = "the mean of a norm's gradient is dropped"
    assert not independent(bias, silu)
    assert not independent(norm, "a rotation is undone in the wrong direction"), "it imports norms"
    assert independent(norm, silu)


def test_without_a_fault_the_rows_are_green(tmp_path: Path) -> None:
    done = checked(copied(tmp_path), "linear_cross_entropy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kernel linear_cross_entropy (many rows)" in done.stdout
