"""Launches: what is asked for, the trials on Ray Tune or in this process, watched and summed up.

Brings runtime, tracking and console together. Only `tune_run.py` calls Ray Tune.
"""
