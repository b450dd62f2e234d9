"""Go blocks, channels and select (Fluid 0.12 to 0.15; Paddle removed them before 1.0)."""

HOLDER = "@GOROUTINES@"  # the variable of a scope that has its channels and threads
