"""The public functions: diagnose, export, verify, compare, reduce and the others."""

from opbridge.legacy.hooks import install

install()
