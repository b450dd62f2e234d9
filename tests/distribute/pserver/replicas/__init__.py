"""Servers of which there are two copies."""
