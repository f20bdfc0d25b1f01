"""Is this machine, or every node of a cluster, fit? What `fedcome_ray.doctor` finds out.

Knows the federation, to run small trials, and nothing of Ray or MLflow.
"""
