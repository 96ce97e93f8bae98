"""Check the hand-written derivatives on this machine.

`cases()` is the table of all derivatives. A row adds an op or a layer to `pellucid check` and to
every test that all of them must pass (gradients, calling it twice, dtypes, arguments not written
to, other array libraries). It also adds the op's fused kernel, if there is one, to the comparison
with the op (`kernels.check`). `compiled.check` compares compiled generation with the layers.
"""

from pellucid.core.names import exported

__all__, __getattr__ = exported(__name__, __file__)
