from __future__ import annotations

import numpy as np

from pellucid.optim.adam import Moments, adam


def test_adam_by_hand() -> None:
    theta, moments = np.array([2.0]), Moments(np.array([0.0]), np.array([0.0]))
    first, moments = adam(theta, np.array([3.0]), moments, step=1, lr=0.1, eps=0.5)
    # m = 0.3, v = 0.009; m̂ = 3, v̂ = 9; θ = 2 − 0.1 · 3 / (3 + 0.5)
    np.testing.assert_allclose(moments.exp_avg, [0.3], rtol=1e-12)
    np.testing.assert_allclose(moments.exp_avg_sq, [0.009], rtol=1e-12)
    np.testing.assert_allclose(first, [2 - 0.3 / 3.5], rtol=1e-12)
    second, moments = adam(first, np.array([-1.0]), moments, step=2, lr=0.1, eps=0.5)
    # m = 0.27 − 0.1 = 0.17, v = 0.008991 + 0.001 = 0.009991
    m_hat, v_hat = 0.17 / (1 - 0.9**2), 0.009991 / (1 - 0.999**2)
    np.testing.assert_allclose(second, first - 0.1 * m_hat / (v_hat**0.5 + 0.5), rtol=1e-12)


def test_decay_by_hand() -> None:
    zero = Moments(np.zeros(1), np.zeros(1))
    none = np.zeros(1)
    # Without a gradient AdamW only shrinks; Adam takes λθ for a gradient, and steps by lr.
    decoupled, _ = adam(
        np.array([2.0]), none, zero, step=1, lr=0.1, weight_decay=0.5, decoupled=True
    )
    np.testing.assert_allclose(decoupled, [2 * (1 - 0.05)])
    coupled, _ = adam(np.array([2.0]), none, zero, step=1, lr=0.1, weight_decay=0.5)
    np.testing.assert_allclose(coupled, [1.9], rtol=1e-7)
