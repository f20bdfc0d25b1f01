"""Arithmetic: arrays and devices, random numbers, geometry, and the same bits everywhere.

Knows nothing of federated learning.
"""
