"""The mathematics: every function with its derivative right under it, without any state.

`f(x, …) -> (y, saved)` computes an op; `f_backward(dy, saved) -> dx, …` its VJP, from what the
forward saved. Results have the dtype of the arrays: a number (a scale, a probability) becomes a
Python float, because a NumPy float64 would turn float32 arrays into float64. NumPy adds float16 up
in float16, which loses precision: `nn` refuses it, and only GELU and the norms widen it here.
"""

from pellucid.core.names import exported

__all__, __getattr__ = exported(__name__, __file__)
