"""Symbolic functions of the old exporter, one table over several files; :mod:`legacy_cases.table` says what a case is.

Each file beside the table is a script of the old kind: it would run on a torch of 2021, without opbridge.
"""
