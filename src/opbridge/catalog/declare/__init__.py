"""The decorators that declare mappings, and the catalog that collects the declarations."""
