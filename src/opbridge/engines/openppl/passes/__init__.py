"""The passes of OpenPPL alone."""
