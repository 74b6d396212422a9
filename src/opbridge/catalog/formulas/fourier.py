"""A test for Fourier transforms that engines compute accurately in float32."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["LONGEST_PRODUCT", "SHORT", "keeps_its_digits"]

LONGEST_PRODUCT = 2048
"""The longest transform that is written as a product with sines and cosines: they take up to 17 MB."""

SHORT = 256
"""The longest transform for which a product takes less time: in ONNX Runtime 1.32, a fourth for 256, a tenth for 64."""


def keeps_its_digits(lengths: Iterable[Any]) -> bool:
    """Whether all lengths are known to be powers of two.

    ONNX Runtime 1.31 transforms other lengths by a convolution of chirps (Bluestein 1970), which loses a decimal digit
    or two.
    """
    return all(isinstance(length, int) and length & (length - 1) == 0 for length in lengths)
