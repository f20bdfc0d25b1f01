"""Launches: what is asked for, the trials on Ray Tune or in this process, watched and summed up.

Brings runtime, tracking and console together; knows no command, and only `tune_run.py` calls Tune.
"""
