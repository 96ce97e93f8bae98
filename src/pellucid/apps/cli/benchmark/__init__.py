"""What `pellucid bench` and the scripts in benchmarks/ measure with.

`step` has a training step of article 003's model and the rates it is compared with, `real_data`
whole corpora in each side's best batches, `torch_model` the same model in PyTorch, where that is
installed.
"""
