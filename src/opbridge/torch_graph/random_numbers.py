"""Random numbers of torch that are drawn without changing the caller's."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

__all__ = ["own_random_numbers"]

# Two threads that save and restore the one generator in turns would leave the state that the first one set.
_lock = threading.RLock()


@contextlib.contextmanager
def own_random_numbers(seed: int | None = None) -> Iterator[None]:
    """Restore the state of torch's default generator at the end; other threads wait until then to do the same.

    Args:
        seed: The seed for what is drawn inside; None continues the caller's numbers.
    """
    with _lock, torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.manual_seed(seed)
        yield
