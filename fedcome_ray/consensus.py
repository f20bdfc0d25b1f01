from typing import Literal
from types import SimpleNamespace
import numpy as np, torch
from scipy.optimize import nnls

Solver = Literal["active_set", "osqp"]


def agree(u, weights=None, *, gram=None, solver="active_set", clamp=None, match_norm=False):
    m = len(u)
    K = gram.numpy()
    r = np.sqrt(np.diag(K))
    C = K / np.outer(r, r)
    L = np.linalg.cholesky(C + 1e-12 * np.eye(m)).T
    A = np.eye(m)
    for i in range(m):
        if (C[i] < -1e-12).any():
            l, _ = nnls(L, -L[:, i])
            A[i] += l * r[i] / r
    p = np.full(m, 1 / m) if weights is None else weights.double().numpy()
    d = torch.from_numpy((A.T @ p)).float() @ u
    return SimpleNamespace(direction=d, info={"conflicts_before": float((K < 0).sum() / 2)})
