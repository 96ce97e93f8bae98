"""Kernels for PyTorch tensors on any device, which call PyTorch's own fused functions.

`kernels/torch/<name>.py` has `kernel`, like `kernels/<name>.py`. Forward and backward are native
functions of PyTorch, called one by one, without its autograd. An op without a file here, or a call
that is declined, runs the reference op, on the device as well. For a linear layer that is as fast.
The other reference ops took 1.5 to 3.5 times as long on a CPU, GELU 77 times.

The gradients of bfloat16 parameters may be float32, in which they are summed.
"""
