"""GPUs: on a strict stand-in for cupy, for machines that have none."""
