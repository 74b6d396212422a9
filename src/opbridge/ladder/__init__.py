"""Links 2 and 3: the rung of each operator, its translation, and the engine's refusals."""
