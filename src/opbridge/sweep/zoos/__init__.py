"""The built-in collections of models: one file each, with ``PACKAGE``, ``names()`` and ``build(name)``."""
