"""Modules of PyTorch's kernels import it, and have no examples to run."""

collect_ignore = ["pellucid/kernels/torch"]
