"""Go blocks, channels and select (Fluid 0.12 to 0.15; Paddle removed them before 1.0)."""
