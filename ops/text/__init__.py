"""Matching of texts."""
