"""The terminal: exit codes, arguments, paths that users give, what is printed.

Knows nothing of Ray or MLflow; the commands and what they start talk to people through it.
"""
