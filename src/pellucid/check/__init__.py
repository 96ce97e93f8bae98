"""Checks, on this machine, of the derivatives that are written by hand.

`cases()` is the one table of derivatives: a row enrols an op or a layer in `pellucid check` and in
every test that all of them must pass (gradients, used twice, dtype kept, arguments untouched, other
libraries), and an op with a fused kernel in the comparison of that kernel with the op
(`kernels.check`). `compiled.check` compares compiled generation with the layers.
"""

from pellucid.core.names import exported

__all__, __getattr__ = exported(__name__, __file__)
