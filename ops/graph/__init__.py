"""Graphs and segments of Paddle 2.x: rows reduced by the numbers of their targets."""
