"""Control flow: loops, branches, tensor arrays, rank tables, beam search and readers."""
