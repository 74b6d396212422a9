"""Two models beside each other, for ``opbridge compare``: what they are, how they match, where they part."""
