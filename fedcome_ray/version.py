"""The version, which a checkout that is not installed has too, as a job's on a cluster is."""

__version__ = "0.1.0"
