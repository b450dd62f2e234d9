"""`distutils`, which Python dropped in 3.12: what scripts use of it."""
