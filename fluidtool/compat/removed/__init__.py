"""Names that Python, numpy and Pillow have dropped since scripts for Fluid were written, restored while one of them runs."""
