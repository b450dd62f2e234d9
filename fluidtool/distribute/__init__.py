"""Programs for training by several processes: a plan as data, and the programs that builders make of it."""
