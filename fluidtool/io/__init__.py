"""Files: programs, parameters, pickled states and checkpoints, of every layout that Paddle 0.12 to 2.6 writes."""
