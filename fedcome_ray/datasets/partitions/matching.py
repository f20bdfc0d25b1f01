"""Test examples for clients whose training examples a partition has dealt."""

from collections.abc import Sequence

import numpy as np

from fedcome_ray.datasets.population import Indices, Labels


def label_matched(train: Sequence[Labels], test_labels: Labels) -> list[Indices]:
    """Deal each class's test examples to the clients that train on it, in proportion.

    Test examples of a class that nobody trains on belong to nobody.
    """
    num_classes = 1 + max(int(test_labels.max()), *(int(own.max()) for own in train))
    held = np.stack([np.bincount(own, minlength=num_classes) for own in train])
    pieces: list[list[Indices]] = [[] for _ in train]
    for label in np.flatnonzero(held.any(axis=0)):
        members = np.flatnonzero(test_labels == label)
        shares = np.cumsum(held[:, label]) / held[:, label].sum()
        cuts = np.round(shares[:-1] * len(members)).astype(np.int64)
        for client, part in enumerate(np.split(members, cuts)):
            pieces[client].append(part)
    return [np.concatenate(parts) for parts in pieces]
