"""``opbridge migrate``: converts an old export script to the current API, and keeps its comments and layout.

Each transformation is a module of this package that finds one kind of old code, and returns its replacement or the
reason why it is left unchanged. :mod:`~opbridge.legacy.migrate.migration` combines the results.
"""

from opbridge.legacy.migrate.migration import Change, Migration, migrate

__all__ = ["Change", "Migration", "migrate"]
