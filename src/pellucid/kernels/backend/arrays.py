"""New arrays inside a kernel."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.core.imputils import impl_ret_new_ref
from numba.extending import intrinsic
from numba.np.arrayobj import _empty_nd_impl


@intrinsic
def empty(_context, shape, dtype):
    """`np.empty(shape, dtype)`, which Numba compiles as a function for every kind of array."""
    several = isinstance(shape, types.BaseTuple)
    kind = types.Array(dtype.instance_type, len(shape) if several else 1, "C")

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        sizes = cgutils.unpack_tuple(builder, values[0]) if several else [values[0]]
        array = _empty_nd_impl(context, builder, kind, sizes)
        return impl_ret_new_ref(context, builder, kind, array._getvalue())

    return kind(types.UniTuple(types.intp, len(shape)) if several else types.intp, dtype), emit
