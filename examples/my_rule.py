"""A rule of attention of one's own: a gathered table and a learnt scalar.

pellucid train g2p-demo --import examples/my_rule.py --model.attention-function near

A ← A + g_h tanh A + b_h[min(|l − s|, 31)]
"""

from pellucid.ops.rules.function import FUNCTIONS, At, Function, PerHead, Table, minimum, tanh


def distance(at: At):
    return minimum(abs(at.distance), 31)


def near(a, at, gain, bias):
    return a + gain * tanh(a) + bias


def near_backward(da, a, at, gain, bias):
    t = tanh(a)
    return da * (1 + gain * (1 - t * t)), da * t, da


FUNCTIONS["near"] = Function(near, near_backward, {"gain": PerHead(), "bias": Table(32, distance)})
