"""A trial under way: its rounds, its folder, its checkpoint, its tables, where it comes from.

Runs a federation and keeps what happens on disk; knows neither Ray nor MLflow nor the screen.
"""
