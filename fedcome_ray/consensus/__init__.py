"""The consensus: updates without conflicts, by quadratic programs that share one Gram matrix.

Mathematics on updates alone: knows neither methods nor clients.
"""

from fedcome_ray.consensus.agreement import Agreement, Solver, agree

__all__ = ["Agreement", "Solver", "agree"]
