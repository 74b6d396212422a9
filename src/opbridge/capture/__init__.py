"""Link 1: a model, or a function that returns one, becomes a captured program."""
