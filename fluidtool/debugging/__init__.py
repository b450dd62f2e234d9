"""Finding where two runs part: recording every value, comparing, narrowing to the smallest sub-model that shows it."""
