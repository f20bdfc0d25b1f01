"""A user's own data, from tables to the file that `npz:PATH` reads: used by the command alone."""
