"""The methods, by name: mathematics on params and updates, which knows no clients' data, no Ray.

A method is a module with one class of hyper-parameters, whose `name` has a default, and a function
`build`. Ours are listed here; `fedcome_ray.plugins` adds those of users.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import PlainValidator, SerializeAsAny

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import (
    aligned_mtl,
    cagrad,
    centralised,
    con_fig,
    dualproj,
    fairgrad,
    fedadam,
    fedavg,
    fedcome,
    feddc,
    feddyn,
    fedfv,
    fedgh,
    fedmdfg,
    fedmgda_plus,
    fednova,
    fedprox,
    fedyogi,
    imtl_g,
    local,
    mgda,
    nash_mtl,
    pcgrad,
    qffl,
    scaffold,
)
from fedcome_ray.methods.method import AnyMethod
from fedcome_ray.registry import Entry, Registry


@dataclass(frozen=True)
class MethodEntry(Entry[AnyMethod]):
    """Its `build` takes the settings."""


REGISTRY: Registry[MethodEntry] = Registry(
    "method",
    [
        MethodEntry(fedavg.FedAvg, fedavg.build, "FedAvg"),
        MethodEntry(fedprox.FedProx, fedprox.build, "FedProx"),
        MethodEntry(scaffold.Scaffold, scaffold.build, "SCAFFOLD"),
        MethodEntry(feddyn.FedDyn, feddyn.build, "FedDyn"),
        MethodEntry(fedfv.FedFV, fedfv.build, "FedFV"),
        MethodEntry(feddc.FedDC, feddc.build, "FedDC"),
        MethodEntry(
            fedcome.FedCOME,
            fedcome.build,
            "FedCOME",
            compiled="fedcome_ray.consensus.active_set",
        ),
        MethodEntry(fednova.FedNova, fednova.build, "FedNova"),
        MethodEntry(fedadam.FedAdam, fedadam.build, "FedAdam"),
        MethodEntry(fedyogi.FedYogi, fedyogi.build, "FedYogi"),
        MethodEntry(qffl.QFFL, qffl.build, "q-FFL"),
        MethodEntry(fedmgda_plus.FedMGDAPlus, fedmgda_plus.build, "FedMGDA+"),
        MethodEntry(
            dualproj.DualProj,
            dualproj.build,
            "DualProj",
            compiled="fedcome_ray.consensus.active_set",
        ),
        MethodEntry(pcgrad.PCGrad, pcgrad.build, "PCGrad"),
        MethodEntry(mgda.MGDA, mgda.build, "MGDA"),
        MethodEntry(cagrad.CAGrad, cagrad.build, "CAGrad"),
        MethodEntry(imtl_g.IMTLG, imtl_g.build, "IMTL-G"),
        MethodEntry(nash_mtl.NashMTL, nash_mtl.build, "Nash-MTL"),
        MethodEntry(fairgrad.FairGrad, fairgrad.build, "FairGrad"),
        MethodEntry(aligned_mtl.AlignedMTL, aligned_mtl.build, "Aligned-MTL"),
        MethodEntry(con_fig.ConFIG, con_fig.build, "ConFIG"),
        MethodEntry(fedgh.FedGH, fedgh.build, "FedGH"),
        MethodEntry(fedmdfg.FedMDFG, fedmdfg.build, "FedMDFG"),
        MethodEntry(centralised.Centralised, centralised.build, "centralised"),
        MethodEntry(local.Local, local.build, "local"),
    ],
)

PAPER = ("fedavg", "fedprox", "scaffold", "feddyn", "fedfv", "feddc", "fedcome")
"""The rows of the paper's tables, in their order."""
REFERENCES = ("centralised", "local")
"""What methods are held against and do not compete with: no federation, for better and worse."""


def build(config: Hyperparameters) -> AnyMethod:
    """The method that a configuration describes."""
    return REGISTRY.of(config).build(config)


MethodConfig = Annotated[
    SerializeAsAny[Hyperparameters],
    PlainValidator(REGISTRY.parse),
]
