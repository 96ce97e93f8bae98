"""Convert torch's padded arrays to rows, on which layers compute, and back."""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.core.array import Array, host, namespace
from pellucid.core.batch import one_length
from pellucid.core.rng import Rng, row_keys
from pellucid.nn.function import check_numbers


@dataclass(frozen=True)
class Arrangement:
    """The axes of a padded array of N sequences of length L, and its conversion to rows.

    (N, L, E) if `first` (torch's batch_first), (L, E) if `unbatched`, else (L, N, E).

    >>> import numpy as np
    >>> x = np.zeros((5, 3, 2))
    >>> here = Arrangement.of(x, batch_first=False)
    >>> here.rows(x).shape, here.cu_seqlens.tolist()
    ((15, 2), [0, 5, 10, 15])
    """

    n: int
    length: int
    first: bool
    unbatched: bool

    @staticmethod
    def of(x: Array, batch_first: bool) -> Arrangement:
        """Return the arrangement of an array with 3 axes, or 2 if it has no batch axis."""
        if x.ndim == 2:
            return Arrangement(1, x.shape[0], False, True)
        n, length = x.shape[:2] if batch_first else (x.shape[1], x.shape[0])
        return Arrangement(n, length, batch_first, False)

    @property
    def batch(self) -> int | None:
        """N, or None without a batch axis."""
        return None if self.unbatched else self.n

    @property
    def cu_seqlens(self) -> Array:
        """Offsets (N + 1,): the rows of sequence n are cu_seqlens[n] to cu_seqlens[n + 1] − 1."""
        return one_length(self.n, self.length)

    def rows(self, x: Array) -> Array:
        """Convert an array in this arrangement to rows (N · L, E), one sequence after another."""
        xp = namespace(x)
        if not (self.first or self.unbatched):
            x = xp.moveaxis(x, 1, 0)
        return xp.reshape(x, (self.n * self.length, x.shape[-1]))

    def undo(self, rows: Array) -> Array:
        """Convert rows (N · L, E) back to this arrangement."""
        xp = namespace(rows)
        if self.unbatched:
            return rows
        x = xp.reshape(rows, (self.n, self.length, rows.shape[-1]))
        return x if self.first else xp.moveaxis(x, 0, 1)

    def rng(self, rng: Rng | None) -> Rng | None:
        """Return the rng with a key for each row, (T,); None for None.

        The keys are those that the caller has set, arranged as rows, or else derived from (example,
        position).
        """
        if rng is None:
            return None
        if rng.rows is None:
            names = row_keys(host.arange(self.n)[:, None], host.arange(self.length))
        elif self.unbatched:
            names = rng.row_names((self.length,))
        elif self.first:
            names = rng.row_names((self.n, self.length))
        else:
            names = rng.row_names((self.length, self.n)).T
        return rng.at(names.reshape(-1))


def check_attention_inputs(
    query: Array, key: Array, value: Array, widths: tuple[int, int, int], first: bool
) -> None:
    """Raise `ValueError` unless query, key and value fit each other and the layer.

    Raises `TypeError` unless they are arrays of float32, float64 or bfloat16. `widths` are those
    that the layer expects; `first` is torch's batch_first.
    """
    namespace(query, key, value)  # raises TypeError for anything but arrays
    if not query.ndim == key.ndim == value.ndim or query.ndim not in (2, 3):
        raise ValueError(
            "query, key and value must all have 3 axes, or all 2 without a batch; got shapes "
            f"{query.shape}, {key.shape} and {value.shape}"
        )
    for name, x, width in zip(("query", "key", "value"), (query, key, value), widths, strict=True):
        if x.shape[-1] != width:
            raise ValueError(f"{name} must be {width} wide, got shape {x.shape}")
        check_numbers(x, name)
    batch = 0 if first else 1
    if key.shape[:-1] != value.shape[:-1] or (
        query.ndim == 3 and key.shape[batch] != query.shape[batch]
    ):
        raise ValueError(
            f"query, key and value must have the same batch (batch_first={first}), "
            f"key and value the same length; got shapes {query.shape}, {key.shape} and "
            f"{value.shape}"
        )
