"""Texts without Korean: they appear in English, and a run of the tests lists them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence


class UntranslatedWarning(UserWarning):
    """A text has no Korean yet; whoever writes Korean may add it."""


def list_english(texts: Sequence[str], file: str) -> None:
    """List texts without Korean among the warnings of the run; none makes it fail."""
    if texts:
        listed = "\n  ".join(texts)
        warning = UntranslatedWarning(f"in English until {file} has them:\n  {listed}")
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.warn(warning, stacklevel=2)
