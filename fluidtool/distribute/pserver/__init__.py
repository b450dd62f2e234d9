"""What a parameter server does with what arrives: rounds, updates, tables, liveness, checkpoints."""
