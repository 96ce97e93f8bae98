"""The second kernel family: PyTorch's own fused functions, for its tensors on any device.

`kernels/torch/<name>.py` has `kernel`, like `kernels/<name>.py`. Forward and backward are native
functions of torch, called one by one; its autograd has no part in it. A page without a file here,
or a call that is declined, runs the page of `ops`, on the device as well: a linear layer's is as
fast. The pages of the others took 1.5 to 3.5 times as long on a CPU, that of GELU 77 times.

Gradients of parameters that are computed in bfloat16 may come in float32: they are summed so.
"""
