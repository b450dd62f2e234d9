"""`distutils`, which Python dropped in 3.12: the parts that scripts use."""
