"""The passes of OpenPPL."""
