"""Converts the control flow of functions that need a tensor's value in Python, while a model is captured.

``conversion.py`` decides which functions are converted and swaps their code, ``transform.py`` rewrites their source,
and the other files are what the rewritten code calls: an ``if`` on a tensor becomes ``torch.cond``, a loop whose length
depends on data becomes ``torch.while_loop``, and everything else runs as the Python code that it was.
"""
