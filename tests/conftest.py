import torch

# One thread, as in every process of ours: on shared cores two can be many times slower, and the
# promise of equal bits is made for one.
torch.set_num_threads(1)
