"""Starting the roles of a distributed job and keeping them going: on this machine, on Ray, under MPI."""
