"""The decorators, the declarations that they make, and the catalog that finds them."""
