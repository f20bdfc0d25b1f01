from hypothesis import settings

# Times on shared cores say nothing, and the first example pays for compilation.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
