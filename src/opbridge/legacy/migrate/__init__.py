"""``opbridge migrate``: an old export script in today's form, its comments and layout kept.

Each transformation is a file of this package that looks for one old thing, and says what takes its place or why it must
stay. :mod:`~opbridge.legacy.migrate.migration` puts the answers together.
"""

from opbridge.legacy.migrate.migration import Change, Migration, migrate

__all__ = ["Change", "Migration", "migrate"]
