"""Sockets between fluidtool's own roles: packets, how a client gets in, the loop that serves them, the client's side."""
