"""The parts of the proof: fresh inputs, the float64 reference, the error budget, discrete decisions, randomness."""
