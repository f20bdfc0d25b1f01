from collections import Counter


def counts(labels, indices):
    return dict(Counter(labels[indices].tolist()))
