"""What the distance between a query and a key does to their score: windows, ALiBi, T5's table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pellucid import ops
from pellucid.core.array import Array, host, host_dtype, like, namespace, to_host
from pellucid.kernels import dispatch
from pellucid.nn.config import AttentionConfig
from pellucid.nn.context import Context
from pellucid.nn.masks import both
from pellucid.nn.module import Parameter


def with_distances(
    mask: Array | None,
    q: Array,
    cu_k: Array,
    config: AttentionConfig,
    table: Parameter | None,
    context: Context,
) -> tuple[Array | None, Callable[[Array], None] | None]:
    """Add to a mask what distances do to the scores; return it and its backward.

    `table`: T5's, (buckets, H); `backward(dscores)` gives it its gradient.
    """
    xp, cu_q = namespace(q), context.cu_seqlens
    added = score_mask(config, cu_q, cu_k, host_dtype(q))
    if added is not None:
        mask = like(added if mask is None else both(added, to_host(mask)), q)
    if table is None or config.relative is None:
        return mask, None
    learned = table
    buckets = ops.relative_buckets(distances(cu_q, cu_k), *config.relative, not context.causal)
    rows, table_backward = dispatch(
        ops.embedding, like(buckets, q), learned.data, path=context.path
    )
    bias = xp.permute_dims(rows, (0, 3, 1, 2))
    if mask is None:
        mask = bias
    elif mask.dtype == xp.bool:
        mask = xp.where(mask, xp.asarray(-float("inf"), dtype=bias.dtype), bias)
    else:
        mask = mask + bias

    def backward(dscores: Array) -> None:
        each = xp.permute_dims(dscores, (0, 2, 3, 1))
        if each.shape[0] != buckets.shape[0]:
            each = xp.sum(each, axis=0, keepdims=True)
        learned.accumulate(table_backward(each))

    return mask, backward


def score_mask(config: AttentionConfig, cu_q: Array, cu_k: Array, dtype: Any) -> Array | None:
    """Return what window and distances do to the scores: (N or 1, H or 1, L, S), or None.

    bool, True = not allowed, or float in `dtype`, added. The queries of a sequence are the last
    of its keys.

    >>> import numpy as np
    >>> cu = np.array([0, 3])
    >>> score_mask(AttentionConfig(embed_dim=2, num_heads=1, window=2), cu, cu, None)[0, 0]
    array([[False, False,  True],
           [False, False, False],
           [ True, False, False]])
    """
    if config.window is None and config.distance_bias is None:
        return None
    distance, bias = distances(cu_q, cu_k), None
    if config.distance_bias is not None:
        bias = config.distance_bias(distance, config.num_heads).astype(dtype)
    if config.window is None:
        return bias
    far: Array = (host.abs(distance) >= config.window)[:, None]
    return far if bias is None else host.where(far, -host.inf, bias).astype(dtype)


def distances(cu_q: Array, cu_k: Array) -> Array:
    """Return query position − key position, (N, L, S), or (1, L, S) where all sequences agree.

    The queries of a sequence are the last of its keys.

    >>> import numpy as np
    >>> distances(np.array([0, 1]), np.array([0, 3]))
    array([[[2, 1, 0]]])
    """
    queries, keys = host.diff(cu_q), host.diff(cu_k)
    earlier = host.unique(keys - queries) if len(queries) else host.zeros(1, int)
    earlier = earlier if len(earlier) == 1 else keys - queries
    query = earlier[:, None] + host.arange(int(queries.max(initial=0)))
    found: Array = query[:, :, None] - host.arange(int(keys.max(initial=0)))
    return found
