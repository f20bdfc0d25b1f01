"""CIFAR-100 (Krizhevsky, 2009): the one dataset with superclasses."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedcome_ray.datasets import cifar, images, partitions
from fedcome_ray.datasets.cifar import CifarFiles
from fedcome_ray.datasets.dataset import Varying
from fedcome_ray.datasets.images import PooledImages
from fedcome_ray.datasets.partitions import PartitionConfig, Ring2, superclasses
from fedcome_ray.datasets.published import Published
from fedcome_ray.hyperparameters import name_of


class Cifar100(PooledImages, Varying):
    """60,000 colour pictures of 32x32 pixels, in 100 classes of 20 superclasses."""

    has_superclasses: ClassVar[bool] = True

    dataset: Literal["cifar100"] = "cifar100"
    partition: PartitionConfig = Field(default_factory=Ring2)

    @model_validator(mode="after")
    def _check_clients(self) -> Self:
        makes = superclasses.NUM_CLIENTS
        if partitions.REGISTRY.of(self.partition).needs_superclasses and self.num_clients != makes:
            raise ValueError(
                f"the partition `{name_of(self.partition)}` makes {makes} clients, "
                f"{superclasses.CLIENTS_PER_SUPERCLASS} of each superclass, "
                f"got num_clients {self.num_clients}"
            )
        return self


FILES = CifarFiles(
    name="cifar100",
    torchvision_name="CIFAR100",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    labels="fine_labels",
)

# Without a checksum of its arrays; its original files have theirs, known to torchvision.
PUBLISHED = Published(
    name="cifar100",
    feature_shape=(3, 32, 32),
    num_classes=100,
    num_train=50_000,
    num_test=10_000,
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
    originals=cifar.originals(FILES),
)

DATASET = images.dataset(Cifar100, PUBLISHED, "CIFAR-100")
