"""A region as data: values of known shapes, and computations of few kinds; made of operators, rewritten, lowered by engines."""
