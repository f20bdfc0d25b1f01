"""JAX, the whole local training of all clients one compiled function, written by hand.

Forms: `vmap` and `map` (`jax.lax.map`) over clients; the MLP only.
"""

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from tests.benchmarks.peers.task import ROUNDS, Task

Params = list[jax.Array]  # of each layer its weight, then its bias


def run(task: Task) -> None:
    lr, batch_size = task.workload.lr, task.workload.batch_size

    def train(params: Params, x: jax.Array, y: jax.Array, rows: jax.Array) -> Params:
        def step(params: Params, batch: jax.Array) -> tuple[Params, None]:
            gradients = jax.grad(loss)(params, x[batch], y[batch])
            return [p - lr * g for p, g in zip(params, gradients, strict=True)], None

        return lax.scan(step, params, rows)[0]

    @jax.jit
    def one_round(params: Params, x: jax.Array, y: jax.Array, rows: jax.Array) -> Params:
        if task.form == "vmap":
            trained = jax.vmap(train, (None, 0, 0, 0))(params, x, y, rows)
        else:
            trained = lax.map(lambda own: train(params, *own), (x, y, rows))
        return [param.mean(0) for param in trained]

    x, y = (jnp.asarray(array) for array in task.train())
    test = [jnp.asarray(array) for array in task.test()]
    params, rng = first_params(task.start()), np.random.default_rng(0)
    order = np.broadcast_to(np.arange(y.shape[1]), y.shape)
    for number in range(1, ROUNDS + 1):
        rows = rng.permuted(order, axis=1).reshape(len(y), -1, batch_size)
        params = one_round(params, x, y, rows)
        task.report(number, float(accuracy(params, *test)))


def first_params(start: np.ndarray) -> Params:
    shapes = (64, 784), (64,), (10, 64), (10,)
    pieces = np.split(start, np.cumsum([np.prod(shape) for shape in shapes])[:-1])
    return [jnp.asarray(one.reshape(shape).T) for one, shape in zip(pieces, shapes, strict=True)]


def predict(params: Params, x: jax.Array) -> jax.Array:
    weight1, bias1, weight2, bias2 = params
    return jax.nn.relu(x.reshape(len(x), -1) @ weight1 + bias1) @ weight2 + bias2


def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    found = jax.nn.log_softmax(predict(params, x))
    return -jnp.take_along_axis(found, y[:, None], axis=1).mean()


@jax.jit
def accuracy(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    return (predict(params, x).argmax(1) == y).mean()
