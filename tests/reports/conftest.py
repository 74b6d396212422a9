"""Situations of detection models need torchvision, which the oldest versions are tested without."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("torchvision") else ["test_reports.py"]
