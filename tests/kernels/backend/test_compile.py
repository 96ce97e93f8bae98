"""How a kernel is called: numbers, arrays, records, and what it refuses."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from pellucid.kernels.backend import compile, machine_code


class Pair(NamedTuple):
    """A record of an array and a number."""

    values: Any
    factor: Any


PAIR = machine_code.record(Pair, "f8[::1],f8")


@compile.kernel("f8,b1,u4,f8[:]")
def chosen(x, negative, times, out):  # type: ignore[no-untyped-def]
    out[0] = -x * times if negative else x * times


@compile.kernel("f4[:,:],f8[:]")
def sum_rows(x, out):  # type: ignore[no-untyped-def]
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i] += x[i, j]
    out[x.shape[0]] = x.size


@compile.kernel(PAIR, "f8[::1]")
def scaled(pair, out):  # type: ignore[no-untyped-def]
    for i in range(len(out)):
        out[i] = pair.factor * pair.values[i]


@compile.kernel("f8[:]")
def never(x):  # type: ignore[no-untyped-def]
    raise MemoryError("of a kernel")


def test_numbers_of_python_and_of_numpy_are_taken() -> None:
    out = np.zeros(1)
    chosen(1.5, False, 2, out)
    assert out[0] == 3.0
    chosen(np.float32(1.5), np.True_, np.uint32(2), out)
    assert out[0] == -3.0
    with pytest.raises(TypeError, match="must be real number"):
        chosen("1.5", False, 2, out)


def test_an_array_of_another_type_is_named_though_a_number_is_none() -> None:
    with pytest.raises(TypeError, match="chosen: expected argument 4 to be a float64 array"):
        chosen("1.5", False, 2, None)


def test_arrays_of_any_strides_are_read_where_they_lie() -> None:
    x = np.arange(60, dtype=np.float32).reshape(5, 12)
    for view in (x, x[::2, 1::3], x[::-1], np.asfortranarray(x), np.broadcast_to(x[0], (3, 12))):
        out = np.zeros(2 * len(view) + 2)[::2]
        sum_rows(view, out)
        np.testing.assert_array_equal(out[:-1], view.sum(1))
        assert out[-1] == view.size


def test_records_are_taken_apart() -> None:
    out = np.empty(3)
    scaled(Pair(np.arange(3.0), 0.5), out)
    np.testing.assert_array_equal(out, [0.0, 0.5, 1.0])


def test_a_file_that_is_mapped_into_memory_is_an_array_too(tmp_path: Path) -> None:
    np.arange(6, dtype=np.float32).tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.float32, "r", shape=(2, 3))
    out = np.zeros(3)
    sum_rows(mapped, out)
    np.testing.assert_array_equal(out, [3.0, 12.0, 6.0])


@pytest.mark.parametrize(
    "x",
    [
        np.zeros((2, 3)),
        np.zeros(3, np.float32),
        np.zeros((1, 2, 3), np.float32),
        np.zeros((2, 3), np.float32).astype(">f4"),
        np.zeros((2, 3), np.int32),
        np.frombuffer(bytes(25), np.float32, 6, 1).reshape(2, 3),
        [[1.0]],
        None,
        7,
    ],
    ids=["dtype", "one axis", "three axes", "byte order", "integers", "alignment", "list", "None",
         "number"],
)  # fmt: skip
def test_what_is_no_array_of_its_type_is_an_error_that_names_it(x: Any) -> None:
    message = r"sum_rows: expected argument 1 to be a float32 array of 2 axes, got \S"
    with pytest.raises(TypeError, match=message):
        sum_rows(x, np.zeros(9))


def test_a_view_is_no_contiguous_array() -> None:
    with pytest.raises(TypeError, match="a contiguous float64 array of 1 axes, got float64 of"):
        scaled(Pair(np.arange(6.0)[::2], 0.5), np.empty(3))


def test_too_few_arguments_are_an_error() -> None:
    with pytest.raises(TypeError):
        sum_rows(np.zeros((2, 3), np.float32))


def test_a_kernel_that_fails_has_no_memory() -> None:
    with pytest.raises(MemoryError, match="a kernel ran out of memory"):
        never(np.zeros(3))


def test_a_call_keeps_nothing_alive() -> None:
    x, out = np.zeros((2, 3), np.float32), np.zeros(3)
    sum_rows(x, out)
    gc.collect()
    before = sys.getrefcount(x), sys.getrefcount(out)
    for _ in range(100):
        sum_rows(x, out)
        with pytest.raises(TypeError):
            sum_rows(out, x)
    assert (sys.getrefcount(x), sys.getrefcount(out)) == before


@pytest.mark.skipif(sys.platform != "linux", reason="asks glibc to overwrite what is freed")
def test_nothing_that_a_kernel_needs_is_freed_before_it() -> None:
    """At exit the modules go first: here what Python knows of the function, then the function."""
    program = (
        "import builtins\n"
        "from pellucid.kernels import global_norm\n"
        "builtins.kept = global_norm._squares.compile()\n"
    )
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONMALLOC": "malloc",
        "MALLOC_PERTURB_": "2",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
