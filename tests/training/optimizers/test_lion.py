"""Lion by hand."""

from __future__ import annotations

import numpy as np

from pellucid.training.optimizers.lion import lion


def test_lion_by_hand() -> None:
    theta, (m,) = lion(
        np.array([2.0, -1.0]), np.array([3.0, -4.0]), (np.array([-1.0, 0.5]),),
        step=7, lr=0.1, betas=(0.9, 0.99), weight_decay=0.5,
    )  # fmt: skip
    # β₁ m + (1 − β₁) g = −0.9 + 0.3 and 0.45 − 0.4: signs −1 and +1
    np.testing.assert_allclose(theta, [2.0 - 0.1 * (-1 + 1.0), -1.0 - 0.1 * (1 - 0.5)])
    np.testing.assert_allclose(m, [-0.99 + 0.03, 0.495 - 0.04])
