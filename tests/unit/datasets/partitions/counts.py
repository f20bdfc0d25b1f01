from collections import Counter


def counts(labels, indices) -> dict[int, int]:
    return dict(Counter(labels[indices].tolist()))
