"""Every method once more, in plain NumPy and float64, from the publications' pseudocode.

Nothing here is shared with the package, and nothing is clever: servers see all clients, store
whatever the text tells them to store, and train one client after the other. Names are those of the
publications: w are the server's params, y a client's.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import lsq_linear, minimize, root
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

Vector = NDArray[np.float64]
Round = tuple[tuple[int, ...], float]  # cohort and learning rate


@dataclass
class World:
    """The clients' data, and how they train."""

    data: Sequence[tuple[torch.Tensor, torch.Tensor]]
    network: nn.Module  # in float64
    num_steps: int  # K
    weight_decay: float

    @property
    def n(self) -> Vector:
        return np.array([len(labels) for _, labels in self.data], dtype=float)

    @property
    def num_clients(self) -> int:
        return len(self.data)

    def loss(self, w: Vector, i: int) -> torch.Tensor:
        vector_to_parameters(torch.from_numpy(w), self.network.parameters())
        x, labels = self.data[i]
        return nn.functional.cross_entropy(self.network(x), labels)

    def gradient(self, w: Vector, i: int) -> Vector:
        grads = torch.autograd.grad(self.loss(w, i), list(self.network.parameters()))
        return parameters_to_vector(grads).numpy()

    def train(
        self,
        w: Vector,
        i: int,
        lr: float,
        extra: Callable[[Vector], Vector | float] = lambda y: 0.0,
    ) -> Vector:
        """K full-batch steps; `extra` is the gradient of what a method adds to the loss."""
        y = w
        for _ in range(self.num_steps):
            y = y - lr * (self.gradient(y, i) + extra(y) + self.weight_decay * y)
        return y


def fedavg(world: World, w: Vector, rounds: Sequence[Round], server_lr: float = 1.0) -> Vector:
    for cohort, lr in rounds:
        total = sum(world.n[i] for i in cohort)
        mean = sum(world.n[i] / total * world.train(w, i, lr) for i in cohort)
        w = (1 - server_lr) * w + server_lr * mean
    return w


def fedprox(world: World, w: Vector, rounds: Sequence[Round], mu: float) -> Vector:
    for cohort, lr in rounds:
        total = sum(world.n[i] for i in cohort)
        w = sum(
            world.n[i] / total * world.train(w, i, lr, lambda y, w=w: mu * (y - w)) for i in cohort
        )
    return w


def scaffold(world: World, w: Vector, rounds: Sequence[Round], server_lr: float) -> Vector:
    c, c_of = np.zeros_like(w), defaultdict(lambda: np.zeros_like(w))
    for cohort, lr in rounds:
        delta_w, delta_c = [], []
        for i in cohort:
            c_i = c_of[i]
            y = world.train(w, i, lr, lambda y, c_i=c_i, c=c: -c_i + c)
            c_plus = c_i - c + (w - y) / (world.num_steps * lr)
            delta_w.append(y - w)
            delta_c.append(c_plus - c_i)
            c_of[i] = c_plus
        w = w + server_lr * np.mean(delta_w, axis=0)
        c = c + len(cohort) / world.num_clients * np.mean(delta_c, axis=0)
    return w


def feddyn(world: World, w: Vector, rounds: Sequence[Round], alpha: float) -> Vector:
    h = np.zeros((world.num_clients, len(w)))  # of the official code; -alpha h_i is the gradient
    for cohort, lr in rounds:
        ys = []
        for i in cohort:
            y = world.train(w, i, lr, lambda y, h_i=h[i], w=w: alpha * (h_i - w) + alpha * y)
            ys.append(y)
        for i, y in zip(cohort, ys, strict=True):
            h[i] = h[i] + (y - w)
        w = np.mean(ys, axis=0) + np.mean(h, axis=0)
    return w


def feddc(world: World, w: Vector, rounds: Sequence[Round], alpha: float) -> Vector:
    h = np.zeros((world.num_clients, len(w)))
    s_of, s = np.zeros_like(h), np.zeros_like(w)
    for cohort, lr in rounds:
        ys, change = [], np.zeros_like(w)
        for i in cohort:
            h_i, s_i = h[i].copy(), s_of[i].copy()

            def extra(y: Vector, anchor: Vector = w - h_i, linear: Vector = s - s_i) -> Vector:
                return alpha * (y - anchor) + linear

            y = world.train(w, i, lr, extra)
            s_new = s_i - s - (y - w) / (world.num_steps * lr)
            change += s_new - s_i
            s_of[i] = s_new
            h[i] += y - w
            ys.append(y)
        s = s + change / world.num_clients
        w = np.mean(ys, axis=0) + np.mean(h, axis=0)
    return w


def fedfv(
    world: World, w: Vector, rounds: Sequence[Round], alpha: float, tau: int, window: str
) -> Vector:
    history: dict[int, Vector] = {}
    last_round: dict[int, int] = {}
    for t, (cohort, lr) in enumerate(rounds, start=1):
        losses = [world.loss(w, i).item() for i in cohort]
        g = [w - world.train(w, i, lr) for i in cohort]
        for i, g_i in zip(cohort, g, strict=True):
            history[i], last_round[i] = g_i, t
        order = sorted(range(len(g)), key=lambda k: losses[k])
        kept = order[math.ceil((len(g) - 1) * (1 - alpha)) :] if alpha > 0 else []
        projected = []
        for i in range(len(g)):
            p = g[i]
            if i not in kept:
                for j in order:
                    if j != i and p @ g[j] < 0:
                        p = p - (p @ g[j]) / (g[j] @ g[j]) * g[j]
            projected.append(p)
        gt = np.mean(projected, axis=0)
        counted = t if window == "include_current" else t - 1  # the first release counts from 0
        if counted >= tau:
            past = range(tau - 1, -1, -1) if window == "include_current" else range(tau, 0, -1)
            for k in past:
                conflicting = [
                    history[i]
                    for i in range(world.num_clients)
                    if last_round.get(i) == t - k and gt @ history[i] < 0
                ]
                if conflicting:
                    g_con = np.sum(conflicting, axis=0)
                    gt = gt - (gt @ g_con) / (g_con @ g_con) * g_con
        w = w - gt / np.linalg.norm(gt) * np.linalg.norm(np.mean(g, axis=0))
    return w


def fedcome(world: World, w: Vector, rounds: Sequence[Round], weights: str = "samples") -> Vector:
    for cohort, lr in rounds:
        g = np.array([w - world.train(w, i, lr) for i in cohort])
        scale = np.linalg.norm(g, axis=1, keepdims=True)
        agreed = []
        for g_i in g:
            # min |x - g_i| subject to g x >= 0 has the dual min |g_i + g' l| over l >= 0.
            dual = lsq_linear((g / scale).T, -g_i, bounds=(0, np.inf), method="bvls", tol=1e-15)
            agreed.append(g_i + dual.x @ (g / scale))
        n = world.n[list(cohort)] if weights == "samples" else np.ones(len(cohort))
        w = w - n / n.sum() @ np.array(agreed)
    return w


def fednova(world: World, w: Vector, rounds: Sequence[Round]) -> Vector:
    for cohort, lr in rounds:
        p = world.n[list(cohort)] / world.n[list(cohort)].sum()
        tau = np.full(len(cohort), float(world.num_steps))
        d = [
            (w - world.train(w, i, lr)) / (lr * tau_i) for i, tau_i in zip(cohort, tau, strict=True)
        ]
        tau_eff = p @ tau
        w = w - tau_eff * lr * (p @ np.array(d))
    return w


def fedopt(
    world: World, w: Vector, rounds: Sequence[Round], kind: str, eta: float = 0.01
) -> Vector:
    beta1, beta2, tau = 0.9, 0.99, 1e-3
    m, v = np.zeros_like(w), np.full_like(w, tau**2)
    for cohort, lr in rounds:
        p = world.n[list(cohort)] / world.n[list(cohort)].sum()
        delta = p @ np.array([world.train(w, i, lr) - w for i in cohort])
        m = beta1 * m + (1 - beta1) * delta
        if kind == "adam":
            v = beta2 * v + (1 - beta2) * delta**2
        else:
            v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
        w = w + eta * m / (np.sqrt(v) + tau)
    return w


def q_fedavg(
    world: World, w: Vector, rounds: Sequence[Round], q: float, lipschitz: float
) -> Vector:
    for cohort, lr in rounds:
        deltas, hs = [], []
        for k in cohort:
            loss = world.loss(w, k).item() + 1e-10
            delta_w = lipschitz * (w - world.train(w, k, lr))
            deltas.append(loss**q * delta_w)
            hs.append(q * loss ** (q - 1) * (delta_w @ delta_w) + lipschitz * loss**q)
        w = w - np.sum(deltas, axis=0) / np.sum(hs)
    return w


def fedmgda_plus(
    world: World, w: Vector, rounds: Sequence[Round], epsilon: float, server_lr: float
) -> Vector:
    for cohort, lr in rounds:
        g = np.array([w - world.train(w, i, lr) for i in cohort])
        g /= np.linalg.norm(g, axis=1, keepdims=True)
        gram = g @ g.T
        lambda_0 = world.n[list(cohort)] / world.n[list(cohort)].sum()
        solution = minimize(
            lambda weights, gram=gram: weights @ gram @ weights,
            lambda_0,
            jac=lambda weights, gram=gram: 2 * gram @ weights,
            bounds=[(max(0.0, x - epsilon), min(1.0, x + epsilon)) for x in lambda_0],
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": np.ones_like},
            method="SLSQP",
            options={"ftol": 1e-16, "maxiter": 1000},
        )
        w = w - server_lr * solution.x @ g
    return w


def descend(
    world: World,
    w: Vector,
    rounds: Sequence[Round],
    aggregate: Callable[[Vector, Vector, int, tuple[int, ...]], Vector],
) -> Vector:
    """(gradients, shares by examples, round, cohort) -> the direction to go down, each round."""
    for t, (cohort, lr) in enumerate(rounds):
        g = np.array([w - world.train(w, i, lr) for i in cohort])
        n = world.n[list(cohort)]
        w = w - aggregate(g, n / n.sum(), t, cohort)
    return w


def dualproj(world: World, w: Vector, rounds: Sequence[Round]) -> Vector:
    def aggregate(g: Vector, p: Vector, t: int, cohort: tuple[int, ...]) -> Vector:
        scale = np.linalg.norm(g, axis=1, keepdims=True)
        dual = lsq_linear((g / scale).T, -p @ g, bounds=(0, np.inf), method="bvls", tol=1e-15)
        return p @ g + dual.x @ (g / scale)

    return descend(world, w, rounds, aggregate)


def pcgrad(
    world: World,
    w: Vector,
    rounds: Sequence[Round],
    orders: Callable[[int, tuple[int, ...]], Sequence[Sequence[int]]],
) -> Vector:
    def aggregate(g: Vector, p: Vector, t: int, cohort: tuple[int, ...]) -> Vector:
        projected = g.copy()
        for i, order in enumerate(orders(t, cohort)):
            for j in order:
                if j != i and projected[i] @ g[j] < 0:
                    projected[i] -= projected[i] @ g[j] / (g[j] @ g[j]) * g[j]
        return p @ projected

    return descend(world, w, rounds, aggregate)


def fedgh(world: World, w: Vector, rounds: Sequence[Round]) -> Vector:
    def aggregate(g: Vector, p: Vector, t: int, cohort: tuple[int, ...]) -> Vector:
        raw = g.copy()
        for i in range(len(g)):
            for j in range(i + 1, len(g)):
                for one, other in ((i, j), (j, i)):
                    if g[one] @ raw[other] < 0:
                        g[one] -= g[one] @ raw[other] / (raw[other] @ raw[other]) * raw[other]
        return p @ g

    return descend(world, w, rounds, aggregate)


def shortest(g: Vector) -> Vector:
    """The point of least norm in the convex hull of the rows."""
    scale = np.linalg.norm(g, axis=1).max()
    gram = g @ g.T / scale**2
    solution = minimize(
        lambda a: a @ gram @ a / 2,
        np.full(len(g), 1 / len(g)),
        jac=lambda a: gram @ a,
        bounds=[(0, 1)] * len(g),
        constraints={"type": "eq", "fun": lambda a: a.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 1000},
    )
    return solution.x @ g


def mgda(world: World, w: Vector, rounds: Sequence[Round]) -> Vector:
    return descend(world, w, rounds, lambda g, p, t, cohort: shortest(g))


def cagrad(world: World, w: Vector, rounds: Sequence[Round], c: float) -> Vector:
    def aggregate(g: Vector, p: Vector, t: int, cohort: tuple[int, ...]) -> Vector:
        scale = np.linalg.norm(g)
        g = g / scale
        g0 = g.mean(0)
        radius = c * np.linalg.norm(g0)
        solution = minimize(
            lambda a: (a @ g) @ g0 + radius * np.linalg.norm(a @ g),
            np.full(len(g), 1 / len(g)),
            jac=lambda a: g @ g0 + radius * (g @ (a @ g)) / np.linalg.norm(a @ g),
            bounds=[(0, 1)] * len(g),
            constraints={"type": "eq", "fun": lambda a: a.sum() - 1, "jac": np.ones_like},
            method="SLSQP",
            options={"ftol": 1e-16, "maxiter": 1000},
        )
        g_w = solution.x @ g
        return scale * (g0 + radius / np.linalg.norm(g_w) * g_w)

    return descend(world, w, rounds, aggregate)


def imtl_g(world: World, w: Vector, rounds: Sequence[Round]) -> Vector:
    def aggregate(g: Vector, p: Vector, t: int, cohort: tuple[int, ...]) -> Vector:
        u = g / np.linalg.norm(g, axis=1, keepdims=True)
        # The projections on all of u are the same number, and the weights have sum 1.
        system = np.block([[u @ g.T, -np.ones((len(g), 1))], [np.ones(len(g)), np.zeros(1)]])
        return np.linalg.solve(system, np.append(np.zeros(len(g)), 1.0))[:-1] @ g

    return descend(world, w, rounds, aggregate)


def fairgrad(world: World, w: Vector, rounds: Sequence[Round], alpha: float = 1.0) -> Vector:
    def aggregate(g: Vector, p: Vector, t: int, cohort: tuple[int, ...]) -> Vector:
        gram = g @ g.T / np.mean(g**2) / g.shape[1]
        # In logarithms, where every number is a weight; the length is ours to choose: sum 1.
        found = root(
            lambda x: np.log(np.maximum(gram @ np.exp(x), 1e-12)) + x / alpha,
            np.zeros(len(g)),
            tol=1e-13,
        )
        a = np.exp(found.x)
        np.testing.assert_allclose(gram @ a, a ** (-1 / alpha), rtol=1e-8)
        return a / a.sum() @ g

    return descend(world, w, rounds, aggregate)


def aligned_mtl(world: World, w: Vector, rounds: Sequence[Round]) -> Vector:
    def aggregate(g: Vector, p: Vector, t: int, cohort: tuple[int, ...]) -> Vector:
        left, lengths, right = np.linalg.svd(g, full_matrices=False)
        return p @ (lengths.min() * left @ right)

    return descend(world, w, rounds, aggregate)


def con_fig(world: World, w: Vector, rounds: Sequence[Round]) -> Vector:
    def aggregate(g: Vector, p: Vector, t: int, cohort: tuple[int, ...]) -> Vector:
        units = g / np.linalg.norm(g, axis=1, keepdims=True)
        direction = np.linalg.pinv(units) @ np.ones(len(g))
        direction /= np.linalg.norm(direction)
        return p @ (g @ direction) * direction

    return descend(world, w, rounds, aggregate)


def fedmdfg(world: World, w: Vector, rounds: Sequence[Round], theta: float) -> Vector:
    last: dict[int, Vector] = {}
    for cohort, lr in rounds:
        losses = np.array([world.loss(w, i).item() for i in cohort])
        g = np.array([w - world.train(w, i, lr) for i in cohort])
        mu = np.linalg.norm(g, axis=1).mean()
        g = mu * g / np.linalg.norm(g, axis=1, keepdims=True)
        p = np.ones(len(g)) / np.sqrt(len(g))
        unit_losses = losses / np.linalg.norm(losses)
        objectives = list(g)
        if np.degrees(np.arccos(p @ unit_losses)) > theta:
            h = p @ unit_losses * unit_losses - p
            objectives.append(h / np.linalg.norm(h) @ g)
        objectives += [
            mu * gone / np.linalg.norm(gone) for i, gone in last.items() if i not in cohort
        ]
        d = shortest(np.array(objectives))
        last = dict(zip(cohort, g, strict=True))
        w = w - d / np.linalg.norm(d) * np.linalg.norm(g.mean(0))
    return w
