"""The mathematics: every function with its derivative right under it, without any state.

`f(x, …) -> (y, saved)` computes an op; `f_backward(dy, saved) -> dx, …` its VJP, from what the
forward saved. Tables of constants (`alibi`, `sinusoidal`, `relative_buckets`, `causal_mask`) have
no VJP. Arrays are floats unless said otherwise, and results have their dtype: a number (a scale, a
probability) becomes a Python float, because a NumPy float64 would turn float32 arrays into float64.
Sums in float16 overflow beyond 65504 and may lose digits: `nn` refuses float16, and only GELU and
the norms widen it here.
"""

from pellucid.core.names import exported

__all__, __getattr__ = exported(__name__, __file__)
