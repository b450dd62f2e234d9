"""What Python, numpy and Pillow have dropped since scripts for Fluid were written, given back while one of them runs."""
