"""A dynamic size is the key of a dict or an element of a set.

What it means: the model looks up a size in a dict, a set or a cache of its own. A size that varies has no hash value.
Functions with ``functools.lru_cache`` or ``functools.cache`` are not concerned: they are called without their cache.

Why it is a problem: which entry is found depends on the size, which is known only at run time.

Example::

    if x.shape[1] not in self.masks:
        self.masks[x.shape[1]] = torch.ones(x.shape[1], x.shape[1]).tril()
    return x @ self.masks[x.shape[1]]

Fix: compute the value in each call, without the dict. If the size is always the same, leave the dimension out of
``dynamic_shapes``.
"""

from __future__ import annotations

from opbridge.findings.base import Failure, Finding, if_always, shortened
from opbridge.torch_graph.cached_functions import hashed_sources

CODE = "hashed-size"


def explain(failure: Failure) -> Finding | None:
    """Recognized by the error of the hash function of a dynamic size, which has the size."""
    sources = hashed_sources(failure.error)
    if not sources:
        return None
    places = [place for place in failure.places() if place.source in sources]
    named = ", ".join(map(str, places)) or "a dynamic dimension"
    line = f"`{shortened(failure.place.text)}`{failure.at}" if failure.place is not None else "The model"
    sizes = {place.size for place in places}
    return failure.finding(
        CODE,
        named,
        f"{line} uses the size of {named} as a key of a dict, a set or a cache, which a size that varies can't be.",
        f"leave {named} out of dynamic_shapes {if_always(sizes)}; otherwise compute the value without looking it up by "
        "the size.",
    )
