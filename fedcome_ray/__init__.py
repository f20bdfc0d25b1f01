"""Federated-learning experiments on Ray."""

from fedcome_ray.numerics import environment

__version__ = "0.1.0"

environment.settle()  # before NumPy or PyTorch can compute: they read their switches once
