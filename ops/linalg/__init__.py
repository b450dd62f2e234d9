"""Linear algebra of Paddle 2.x: factors, eigenvalues, systems of equations, determinants."""
