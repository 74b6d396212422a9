"""A bundle on disk: its manifest, models and libraries, and loading it."""
