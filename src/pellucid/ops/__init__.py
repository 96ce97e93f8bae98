"""The mathematics: every function with its derivative right under it, and no state anywhere.

`f(x, …) -> (y, saved)` and `f_backward(dy, saved) -> dx, …`. The arrays alone give the dtype: a
number (a scale, a probability) is made Python's float, because NumPy's float64 would widen float32.
NumPy adds float16 up in float16, so that `nn` refuses it; here only GELU and LayerNorm widen it.
"""

from pellucid.core.names import exported

__all__, __getattr__ = exported(__name__, __file__)
