"""Import torchvision, also beside a torch that it was not built for.

Its wheels are built for CUDA. Beside a CPU torch their compiled operators cannot load, and
`import torchvision` fails because nobody declared `torchvision::nms`. Declaring the two schemas
lets it load: what we use of it, the datasets, is plain Python. A torchvision that imports by
itself is left alone.
"""

from typing import Any

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[object] = []  # a schema is withdrawn when its library is collected


def torchvision_datasets() -> Any:
    """The module `torchvision.datasets`."""
    try:
        import torchvision.datasets
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
        import torch  # slow to import

        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}{_SCHEMA}")
        _declared.append(library)
        import torchvision.datasets
    return torchvision.datasets
