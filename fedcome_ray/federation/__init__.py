"""The federation: one round (`round.py`, start there), the server, shards and the sharding rule.

Knows clients and the parts that can be exchanged; nothing of folders, Ray or MLflow.
"""
