"""The elementwise activations of `bias_act_dropout`, one file each, compiled only where used.

A file has `value(x)` and `slope(x)`, functions of one number that vectorise. Where the output alone
determines the gradient, and an output of 0 gives none, `gradient_from_output(dy, y)` replaces
`slope`: x and the dropout bits are then not needed again.
"""
