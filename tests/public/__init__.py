"""Runs public repositories' scripts under `fluidtool exec` and under real Paddle 1.8.5, by hand; nothing of theirs is kept."""
