"""Mirrors trials in MLflow; may not know Ray, nor how trials are launched."""
