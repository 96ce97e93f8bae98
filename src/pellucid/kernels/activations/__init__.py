"""The elementwise activations of `bias_act_dropout`, one file each, compiled when first used.

A file has `value(x)` and `slope(x)`, functions of one number that can be vectorised. If the output
alone determines the gradient, and the gradient is 0 where the output is 0, the file has
`gradient_from_output(dy, y)` instead of `slope`; backward then needs neither x nor dropout bits.
"""
