"""What tests of one process must not see of each other."""

from __future__ import annotations

import pytest

_LEGACY = ("test_legacy_", "test_migrate", "test_rewriters", "test_run_script")
_set_aside: list = []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Old symbolic functions compete with declarations for the same operators: those of other tests' examples go.

    A hook, because it must come before the fixtures of a session.
    """
    if item.path.name.startswith(_LEGACY):
        from opbridge import spec

        _set_aside[:] = [found for found in spec._declared if found.target.startswith(("aten::", "torchvision::"))]
        spec._declared[:] = [found for found in spec._declared if found not in _set_aside]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """The example modules are imported once, and declare nothing a second time."""
    if _set_aside:
        from opbridge import spec

        spec._declared.extend(_set_aside)
        _set_aside.clear()
