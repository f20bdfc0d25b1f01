"""A `torch.nn.Module` as a model: a function of its parameters, tried before it is trained.

Clients send and average parameters and nothing else. So a module must compute with these alone:
buffers are constants, and what layers of dropout drop comes from the client's own random numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.utils import parameters_to_vector

from fedcome_ray.errors import ConfigError
from fedcome_ray.models.differentiated import Differentiated
from fedcome_ray.models.model import Batch, Dropout, Shape, views
from fedcome_ray.numerics.randomness import Stream, generator

REMEDY = "use GroupNorm instead of BatchNorm"
ROUNDING = 1e-3  # of activations in single precision, in another order


class Dropping(nn.Module):
    """In the place of `nn.Dropout`: it multiplies by masks that it is given.

    They come in the order in which layers are called; without masks nothing is dropped.
    """

    def __init__(self, rate: float, masks: "Masks") -> None:
        super().__init__()
        self.p, self._masks = rate, masks

    def forward(self, x: Tensor) -> Tensor:
        return self._masks.apply(x, self.p)


class Masks:
    """The masks of the forward pass under way."""

    def __init__(self) -> None:
        self._left: Iterator[Tensor] | None = None
        self._noted: list[tuple[float, Shape]] | None = None

    def begin(self, masks: Sequence[Tensor]) -> None:
        self._left = iter(masks) if len(masks) else None

    @contextmanager
    def noted(self) -> Iterator[list[tuple[float, Shape]]]:
        """The rates and the shapes of what is dropped meanwhile."""
        self._noted = []
        try:
            yield self._noted
        finally:
            self._noted = None

    def apply(self, x: Tensor, rate: float) -> Tensor:
        if self._noted is not None:
            self._noted.append((rate, tuple(x.shape)))
        return x if self._left is None else x * next(self._left)


class FromModule(Differentiated):
    """A model from a module, which is a template: it is called with the params of clients."""

    def __init__(
        self,
        module: nn.Module,
        masks: Masks,
        init: Callable[[int], Tensor],
        feature_shape: Shape,
        feature_dtype: torch.dtype,
        dropout: Dropout | None,
    ) -> None:
        shapes = [tuple(parameter.shape) for parameter in module.parameters()]
        super().__init__(self._call, shapes, feature_shape, init, dropout, feature_dtype)
        self._module, self._masks = module, masks
        self._names = [name for name, _ in module.named_parameters()]
        self._constants = {torch.device("cpu"): dict(module.named_buffers())}  # by device

    def logits(self, params: Tensor, x: Tensor) -> Tensor:
        self._module.eval()
        try:
            return super().logits(params, x)
        finally:
            self._module.train()

    def _call(self, params: Sequence[Tensor], x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        if x.device not in self._constants:
            known = self._constants[torch.device("cpu")]
            self._constants[x.device] = {name: one.to(x.device) for name, one in known.items()}
        named = dict(zip(self._names, params, strict=True)) | self._constants[x.device]
        self._masks.begin(masks)
        inputs = x if x.is_floating_point() else x.long()  # which `nn.Embedding` takes
        logits: Tensor = functional_call(self._module, named, (inputs,))
        return logits


def from_module(
    make: Callable[[], nn.Module],
    feature_shape: Shape,
    num_classes: int,
    feature_dtype: DTypeLike = np.float32,
    name: str = "module",
) -> FromModule:
    """A model from a module: `make` builds it, with its initial parameters."""
    module, masks = _made(make, 0), Masks()
    _check_parts(module, name)
    _replace_dropout(module, masks)
    is_integer = np.issubdtype(feature_dtype, np.integer)
    dtype = torch.int64 if is_integer else torch.float32
    x = _examples(feature_shape, dtype)
    dropout = _try(module, masks, x, num_classes, name)
    model = FromModule(
        module,
        masks,
        lambda seed: parameters_to_vector(_made(make, seed).parameters()).detach(),
        feature_shape,
        dtype,
        dropout,
    )
    _check_training(model, x, num_classes, name)
    return model


def _check_training(model: FromModule, x: Tensor, num_classes: int, name: str) -> None:
    """Refuse a model whose start is not determined by the seed, or which has no gradient."""
    params = model.init(0)
    if not torch.equal(params, model.init(0)):
        raise ConfigError(
            f"model: `{name}` has other initial parameters each time; they must be drawn by PyTorch"
        )
    gradient = torch.zeros_like(params).unsqueeze(0)
    y = torch.arange(len(x)) % num_classes
    masks = (
        [torch.ones(1, len(x), *shape) for shape in model.dropout.shapes] if model.dropout else []
    )
    batch = Batch(x.unsqueeze(0), y.unsqueeze(0), torch.full((1, len(x)), 1 / len(x)), masks)
    parts, whole = views(gradient, model.shapes), views(params.unsqueeze(0), model.shapes)
    model.add_gradient(parts, whole, batch, keep=0.0, scale=1.0)
    if not gradient.isfinite().all():
        raise ConfigError(
            f"model: the gradient of `{name}` is not finite at its initial parameters"
        )


def _made(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # noqa: TID251 (modules initialise from the global generator)
        return make().float()


def _examples(feature_shape: Shape, dtype: torch.dtype) -> Tensor:
    """Two examples to try it with; the id 0 is known to every vocabulary."""
    if not dtype.is_floating_point:
        return torch.zeros(2, *feature_shape, dtype=dtype)
    rng = generator(0, Stream.INIT)
    return torch.from_numpy(rng.standard_normal((2, *feature_shape), np.float32))


def _check_parts(module: nn.Module, name: str) -> None:
    for layer, part in module.named_modules():
        if isinstance(part, _BatchNorm):
            raise ConfigError(
                f"model: `{name}` has BatchNorm ({layer}): its statistics are state that clients "
                f"would neither send nor average; {REMEDY}"
            )
        inner = getattr(part, "dropout", 0.0)
        if isinstance(part, nn.MultiheadAttention | nn.RNNBase) and inner:
            raise ConfigError(
                f"model: `{name}` has a layer ({layer}) that drops inside, where only the global "
                f"generator can be used; set its `dropout` to 0 and put an `nn.Dropout` behind it"
            )
    frozen = [key for key, parameter in module.named_parameters() if not parameter.requires_grad]
    if frozen:
        raise ConfigError(
            f"model: `{name}` has parameters without gradient ({', '.join(frozen)}), but clients "
            f"train all; make them buffers, which are constants"
        )


def _replace_dropout(module: nn.Module, masks: Masks) -> None:
    for parent in list(module.modules()):
        for key, part in list(parent.named_children()):
            if isinstance(part, nn.Dropout):
                setattr(parent, key, Dropping(part.p, masks) if part.p else nn.Identity())
            elif isinstance(part, _DropoutNd) and part.p:
                raise ConfigError(
                    f"model: `{type(part).__name__}` is not supported; use `nn.Dropout`"
                )


def _try(module: nn.Module, masks: Masks, x: Tensor, num_classes: int, name: str) -> Dropout | None:
    """The dropout of a module, if it is a function of parameters and of each example alone."""
    before = {key: buffer.clone() for key, buffer in module.named_buffers()}
    with masks.noted() as layers:
        both = _forward(module, x, name, seed=0)
    if not isinstance(both, Tensor) or both.shape != (len(x), num_classes):
        found = f"shape {list(both.shape)}" if isinstance(both, Tensor) else type(both).__name__
        raise ConfigError(
            f"model: `{name}` gives {found} for {len(x)} examples, expected "
            f"{[len(x), num_classes]}, a number for each class"
        )
    changed = [key for key, one in module.named_buffers() if not torch.equal(one, before[key])]
    if changed:
        raise ConfigError(
            f"model: `{name}` changes its buffers ({', '.join(changed)}): they are state that "
            f"clients would neither send nor average; {REMEDY}"
        )
    if not torch.equal(both, _forward(module, x, name, seed=1)):
        raise ConfigError(
            f"model: `{name}` draws random numbers in its forward pass; use `nn.Dropout`, whose "
            f"numbers come from the client's own stream"
        )
    alone = _forward(module, x[:1], name, seed=0)
    if not torch.allclose(both[:1], alone, rtol=ROUNDING, atol=ROUNDING):
        raise ConfigError(
            f"model: `{name}` gives an example other logits in company than alone; {REMEDY}"
        )
    if any(shape[0] != len(x) for _, shape in layers):
        raise ConfigError(f"model: the first axis at a dropout of `{name}` must be the examples'")
    if not layers:
        return None
    rates, shapes = zip(*((rate, shape[1:]) for rate, shape in layers), strict=True)
    return Dropout(rates, shapes)


def _forward(module: nn.Module, x: Tensor, name: str, seed: int) -> Any:
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # noqa: TID251 (to see whether it is used)
            return module(x)
    except Exception as error:
        shape, dtype = "x".join(map(str, x.shape[1:])), str(x.dtype).removeprefix("torch.")
        first = next(iter(str(error).splitlines()), "")
        raise ConfigError(
            f"model: `{name}` cannot take the examples of this dataset, {dtype} of {shape}: "
            f"{type(error).__name__}: {first}"
        ) from error
