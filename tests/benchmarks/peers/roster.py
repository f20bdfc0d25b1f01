"""Who is measured."""

from dataclasses import dataclass

REFERENCE = "ours"  # what the others are compared with


@dataclass(frozen=True)
class Peer:
    """An adapter, the form in which it is run, and what its environment needs."""

    name: str
    title: str
    module: str
    form: str = "usual"
    requirements: tuple[str, ...] = ()  # none: it runs in our own environment
    models: tuple[str, ...] = ("mlp", "conv2")


# A CNN under `lax.map` took ten times our CPU time: a fair one would be another program.
JAX = ("jax==0.10.2",)
PEERS = {
    peer.name: peer
    for peer in (
        Peer(REFERENCE, "fedcome_ray, two Ray shards", "ours", "ray"),
        Peer("ours_in_process", "fedcome_ray, in process", "ours", "in_process"),
        Peer("jax_map", "JAX by hand, lax.map", "jax", "map", JAX, models=("mlp",)),
        Peer("jax_vmap", "JAX by hand, vmap", "jax", "vmap", JAX, models=("mlp",)),
        Peer("plain_bmm", "PyTorch by hand, stacked", "plain", "bmm", models=("mlp",)),
        Peer("plain", "PyTorch loop, tuned", "plain", "tuned"),
        Peer("plain_dataloader", "PyTorch loop, DataLoader", "plain", "dataloader"),
        Peer("pfl", "pfl-research", "pfl", requirements=("pfl[pytorch]==0.6.0",)),
        Peer("fluke", "fluke", "fluke", requirements=("fluke-fl==0.8.1",)),
        # Later releases of Flower ask for certificates newer than some package indexes have.
        Peer("flower", "Flower", "flower", requirements=("flwr[simulation]==1.41.0", "torch")),
    )
}
