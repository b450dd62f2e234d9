"""Shapes, creation, indexing and sorting: operators that move numbers more than they compute."""
