"""Kernels: compiled operators behind one C ABI (``opbridge.h``), for every engine and for PyTorch."""
