"""Experiments as they are written down: a trial's settings, grids of trials, overlays.

Knows what there is to choose, and nothing of how or where trials run.
"""
