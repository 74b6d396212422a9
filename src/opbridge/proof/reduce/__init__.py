"""The smallest model that still fails."""
