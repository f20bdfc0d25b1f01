"""Arithmetic: what the numerical libraries compute with, and that it is the same everywhere."""
