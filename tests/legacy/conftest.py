"""Declarations that other tests have made stay out of the tests of old symbolic functions."""

from __future__ import annotations

import pytest

_set_aside: list = []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Old symbolic functions compete with declarations for the same operators: those of other tests' examples go.

    A hook, because it must come before the fixtures of a session.
    """
    from opbridge.catalog.declare import spec

    _set_aside[:] = [found for found in spec._declared if found.target.startswith(("aten::", "torchvision::"))]
    spec._declared[:] = [found for found in spec._declared if found not in _set_aside]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """The example modules are imported once, and declare nothing a second time."""
    if _set_aside:
        from opbridge.catalog.declare import spec

        spec._declared.extend(_set_aside)
        _set_aside.clear()
