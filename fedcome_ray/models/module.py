"""A model and its params as a `torch.nn.Module`, to go on with in plain PyTorch."""

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from fedcome_ray.models.model import Model, views


class Trained(nn.Module):
    """Computes the logits of a model; its parameters are the model's tensors, in their order."""

    def __init__(self, model: Model, params: Tensor) -> None:
        super().__init__()
        self._model = model
        tensors = views(params.detach().clone(), model.shapes)
        self.tensors = nn.ParameterList([nn.Parameter(tensor.clone()) for tensor in tensors])

    def forward(self, x: Tensor) -> Tensor:
        return self._model.logits(parameters_to_vector(self.tensors), x)


def as_module(model: Model, params: Tensor) -> nn.Module:
    """The model with these params, `[dim]`."""
    if params.shape != (model.dim,):
        raise ValueError(f"the model needs params [{model.dim}], got {list(params.shape)}")
    return Trained(model, params.to(torch.float32))
