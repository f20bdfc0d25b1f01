"""From what was found on the nodes to lines with a mark."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from fedcome_ray.health import gpu
from fedcome_ray.health.examination import Examination

Mark = Literal["good", "doubtful", "bad"]
LEAST_FREE_BYTES = 2_000_000_000


class Verdict(NamedTuple):
    """One line of the doctor's."""

    mark: Mark
    topic: str
    text: str


def verdicts(nodes: Sequence[Examination]) -> list[Verdict]:
    """Of all nodes: what differs between them, then each on its own."""
    lines = [_versions(nodes)]
    for node in nodes:
        plain = node["plain"]
        where = f"{node['host']}: " if len(nodes) > 1 else ""
        found = [
            _processor(node),
            _libraries(plain["arithmetic"]),
            _company(plain["dependent_kinds"]),
            _fingerprints(node),
            _resources(node),
            _speed(plain["examples_per_second"]),
            _output(node),
            *_gpu(node),
        ]
        lines += [Verdict(mark, topic, f"{where}{text}") for mark, topic, text in found]
    if len(nodes) > 1:
        lines += [_same_fingerprints(nodes, "plain"), _same_fingerprints(nodes, "portable")]
    return lines


def _versions(nodes: Sequence[Examination]) -> Verdict:
    first, *others = (node["plain"]["versions"] for node in nodes)
    text = ", ".join(f"{name} {version}" for name, version in first.items())
    differing = sorted({k for other in others for k in first if other.get(k) != first[k]})
    if differing:
        found = [f"{node['host']} {node['plain']['versions']}" for node in nodes]
        return Verdict("bad", "versions", f"{', '.join(differing)} differ: {'; '.join(found)}")
    return Verdict("good", "versions", text)


def _processor(node: Examination) -> Verdict:
    return Verdict("good", "processor", node["plain"]["arithmetic"]["cpu"])


def _libraries(arithmetic: Mapping[str, str]) -> Verdict:
    names = ("mkl", "onednn", "aten", "numpy", "numpy_blas", "numba", "threads")
    is_fixed = arithmetic["mkl"].endswith(("strict", "compatible", "none"))
    text = "; ".join(f"{name} {arithmetic[name]}" for name in names)
    return Verdict("good" if is_fixed else "doubtful", "arithmetic", text)


def _company(dependent: Sequence[str]) -> Verdict:
    if dependent:
        text = f"DEPEND on company ({'; '.join(dependent)}): results vary with the number of shards"
        return Verdict("bad", "bits", text)
    return Verdict("good", "bits", "do not depend on company (on the processor, all models)")


def _fingerprints(node: Examination) -> Verdict:
    words = [f"plain {_joined(node['plain'])}"]
    if node["portable"] is not None:
        words.append(f"portable {_joined(node['portable'])}")
        return Verdict("good", "fingerprints", "  ".join(words))
    words.append(f"portable: {node['portable_obstacle']}")
    return Verdict("doubtful", "fingerprints", "  ".join(words))


def _joined(probe: Mapping[str, Any]) -> str:
    return "-".join(probe["fingerprints"].values())


def _same_fingerprints(nodes: Sequence[Examination], kind: Literal["plain", "portable"]) -> Verdict:
    probes = [node[kind] for node in nodes]
    found = {_joined(probe) for probe in probes if probe is not None}
    topic = f"{kind} nodes"
    if not found:
        obstacle = nodes[0]["portable_obstacle"]
        return Verdict("doubtful", topic, f"cannot compute like other machines: {obstacle}")
    if len(found) <= 1 and None not in probes:
        return Verdict("good", topic, f"compute the same bits, {kind}")
    if kind == "plain":
        return Verdict("doubtful", topic, "compute other bits than each other; see --portable")
    return Verdict("bad", topic, "do not compute the same bits, not even with --portable")


def _resources(node: Examination) -> Verdict:
    gpus = ", ".join(node["plain"]["gpus"]) or "no GPU that PyTorch can use"
    memory = node["memory_bytes"] / 2**30
    return Verdict("good", "machine", f"{node['cores']} cores, {memory:.0f} GiB of memory, {gpus}")


def _gpu(node: Examination) -> list[Verdict]:
    """Of the GPU, where there is one: its numbers, bits and shares; how fast it is."""
    found: Any = node["gpu"]
    if found is None:
        problem = node["gpu_problem"]
        return [] if problem is None else [Verdict("bad", "GPU", problem)]
    wrong = gpu.faults(found)
    far = max(found["distances"].values())
    text = f"within {far:.0e} of the processor, the same bits again, can be shared"
    rates = (
        f"{kind} {rate['engine']:,.0f}, {rate['engine'] / rate['loop']:.1f} x a plain loop"
        for kind, rate in found["examples_per_second"].items()
    )
    return [
        Verdict("bad", "GPU", "; ".join(wrong)) if wrong else Verdict("good", "GPU", text),
        Verdict("good", "GPU speed", f"{'; '.join(rates)} (examples a second)"),
    ]


def _speed(examples_per_second: Mapping[str, float]) -> Verdict:
    words = (f"{kind} {rate:,.0f}" for kind, rate in examples_per_second.items())
    return Verdict("good", "speed", f"{', '.join(words)} examples a second and process")


def _output(node: Examination) -> Verdict:
    if node["output_problem"] is not None:
        return Verdict("bad", "output", node["output_problem"])
    free = node["free_bytes"] or 0
    mark: Mark = "good" if free > LEAST_FREE_BYTES else "doubtful"
    return Verdict(mark, "output", f"can be written, {free / 1e9:,.0f} GB free")
