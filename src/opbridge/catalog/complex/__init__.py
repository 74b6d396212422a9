"""Complex tensors as pairs of real ones: what each torch operator becomes. One family, one file."""
