"""Drawings: programs as graphs in SVG, DOT and HTML; time and memory as charts."""
