"""The clients' side of a round: batches, local training, states, evaluation, shards of clients.

Knows nothing of the server, of other shards or of where it runs.
"""
