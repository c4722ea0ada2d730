"""The sections of a scenario file about learning: data, how it is shared out, and the model."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from protocols.settings import Count, SettingError, Settings, Weight, Within
from sim.settings.shared import ShareBelowOne, exactly_one, kind_alone

DATASETS: Mapping[str, str] = {
    "digits": "1,797 handwritten digits, 8x8 pixels as 64 numbers, 10 classes; built in",
    "fashion-mnist": "70,000 grey pictures of clothes, 28x28 pixels, 10 classes",
    "mnist": "70,000 handwritten digits, 28x28 pixels, 10 classes",
    "cifar-10": "60,000 coloured pictures, 32x32 pixels, 10 classes",
    "cifar-100": "60,000 coloured pictures, 32x32 pixels, 100 classes",
    "quadratic": "quadratic functions with noisy gradients, one optimum per cluster (CoBo, Example 2)",
}
"""What each data set is, for people."""

# Data -----------------------------------------------------------------------------------------------------


class _Sampled(Settings):
    samples_per_client: Count | None = None
    """Training samples of each client; by default everything is shared out."""


class _Clustered(_Sampled):
    clusters: Count | None = None
    """Number of clusters, as equal in size as possible."""
    sizes: tuple[Count, ...] | None = None
    """Clients in each cluster, instead of `clusters`."""

    @model_validator(mode="after")
    def _one_way(self) -> "_Clustered":
        exactly_one(self, "clusters", "sizes")
        return self


class Iid(_Sampled):
    """Every client draws from the same distribution."""

    kind: Literal["iid"]


class Dirichlet(_Sampled):
    """Each client's mixture of classes is drawn from a Dirichlet distribution."""

    kind: Literal["dirichlet"]
    alpha: Annotated[PositiveFloat, Within(0.001, 1_000_000)]
    """Concentration: small means few classes per client, large means iid."""
    min_samples: Count = 2
    """No client has fewer training samples."""


class ClassesPerClient(_Sampled):
    """Each client has samples of a few classes, drawn at random."""

    kind: Literal["classes-per-client"]
    classes: Count
    """Classes of each client."""


class PermutedClusters(_Clustered):
    """Clusters see the same inputs with differently permuted labels (CoBo, cross-silo)."""

    kind: Literal["permuted-clusters"]
    shift: Count | None = None
    """Cluster k calls the class y (y + shift k) mod K; by default permutations are random."""


class DisjointClusters(_Clustered):
    """Clusters share no class (CoBo, cross-device; SCooL's stochastic block model setting)."""

    kind: Literal["disjoint-clusters"]
    relabel: bool = False
    """Number the classes of each cluster from 0."""


class Mapl(Settings):
    """The four scenarios of MAPL: two clusters, disjoint or overlapping classes, equal or unequal amounts."""

    kind: Literal["mapl"]
    scenario: Annotated[int, Field(ge=1, le=4)]
    """1: disjoint classes; 2: overlapping; 3 and 4: the same with different numbers of samples."""
    images_per_class: Count = 300
    """Training samples per class and client; in scenarios 3 and 4 the largest number."""
    images_per_class_min: Count = 100
    """Smallest number in scenarios 3 and 4."""
    shared_classes: Annotated[int, Field(ge=0, le=100, multiple_of=2)] = 2
    """Classes that neighbouring clusters share in scenarios 2 and 4."""
    test_images_per_class: Count = 15
    """Test samples per class and client."""
    clusters: Annotated[int, Field(ge=2), Within(2, 1_000_000)] = 2
    """Number of clusters."""

    @model_validator(mode="after")
    def _ordered(self) -> "Mapl":
        if self.scenario >= 3 and self.images_per_class_min > self.images_per_class:
            raise SettingError(
                "images_per_class_min",
                self.images_per_class_min,
                f"must be at most images_per_class ({self.images_per_class})",
            )
        return self


Partition = Annotated[
    Annotated[
        Iid | Dirichlet | ClassesPerClient | PermutedClusters | DisjointClusters | Mapl,
        Field(discriminator="kind"),
    ],
    kind_alone("iid"),
]


class ImageData(Settings):
    """Images with class labels, shared out to the clients."""

    name: Literal["digits", "fashion-mnist", "mnist", "cifar-10", "cifar-100"]
    """The data set; digits is built in, the others come from the data folder."""
    partition: Partition
    """Who gets which samples: a kind, or a table with its settings."""
    test_samples: Count | None = None
    """At most so many test samples per client."""
    validation_share: ShareBelowOne = 0.0
    """Share of each client's training samples that it holds back for its own validation."""

    @property
    def classes(self) -> int:
        """Number of classes of the data set."""
        return 100 if self.name == "cifar-100" else 10


_Curvature = Annotated[PositiveFloat, Within(1e-6, 1_000_000)]


class QuadraticData(Settings):
    """Quadratic functions a/2 |x - mu_k|^2 with noisy gradients, one mu_k per cluster (CoBo, Example 2)."""

    name: Literal["quadratic"]
    """The data set."""
    clusters: Count
    """Number of clusters, as equal in size as possible."""
    dimension: Annotated[PositiveInt, Within(1, 100_000)] = 20
    """Dimension of x."""
    curvatures: Annotated[tuple[_Curvature, ...], Field(min_length=1)] = (1.0, 0.8)
    """The a of the clients of each cluster, in turn."""
    distance: Weight = 2.0
    """Length of each mu_k."""
    noise: Weight = 0.1
    """Standard deviation of each coordinate of a stochastic gradient."""
    samples: Annotated[int, Field(ge=2, multiple_of=2), Within(2, 1_000_000)] = 1000
    """Training rows per client, in pairs of opposite noise, so that their mean is exactly mu_k."""


Data = Annotated[ImageData | QuadraticData, Field(discriminator="name")]

# Models --------------------------------------------------------------------------------------------------


Backbone = Literal[
    "small-mlp",
    "deep-mlp",
    "small-cnn",
    "deep-cnn",
    "small-resnet",
    "alexnet",
    "resnet18",
    "shufflenet",
    "googlenet",
]


class _Initialised(Settings):
    initialisation: Literal["shared", "independent"] = "shared"
    """Whether all clients start from the same parameters or each from its own."""


class LogisticRegression(_Initialised):
    """One linear layer."""

    name: Literal["logistic-regression"]


class Mlp(_Initialised):
    """Fully connected layers with ReLU."""

    name: Literal["mlp"]
    hidden: Annotated[tuple[Count, ...], Field(max_length=100)] = (100,)
    """Width of each hidden layer."""


class Cnn(_Initialised):
    """FedAvg's network: two 5x5 convolutions (32, 64), each with pooling, then 512 units."""

    name: Literal["cnn"]


class ResNet9(_Initialised):
    """Residual network of nine layers with GroupNorm."""

    name: Literal["resnet9"]
    width: Annotated[PositiveInt, Within(1, 10_000)] = 64
    """Channels of the first layer."""
    groups: Count = 32
    """Groups of each GroupNorm; divides `width`."""

    @model_validator(mode="after")
    def _divides(self) -> "ResNet9":
        if self.width % self.groups:
            raise SettingError("groups", self.groups, f"must divide width ({self.width})")
        return self


class Decoupled(_Initialised):
    """A backbone, which may differ between clients, and a linear head on the ReLU of its features.

    The protocol adds the parts that it needs: a projection, prototypes, a copy of a head (MAPL and what it is
    compared with). "resnet18", "shufflenet" (v2 x1.0) and "googlenet" are torchvision's, not pretrained,
    without dropout and auxiliary outputs; "alexnet" is a small one of three convolutions.
    """

    initialisation: Literal["shared", "independent", "shared-backbone"] = "shared"  # type: ignore[assignment]
    """Whether all clients with the same backbone start from the same parameters, or each from its own, or
    from the same backbone with a head of its own: heads that start alike hide who has the same classes."""
    name: Literal["decoupled"]
    backbones: Annotated[tuple[Backbone, ...], Field(min_length=1)]
    """The backbones that there are; all but small-mlp and deep-mlp need images."""
    assign: Literal["in-turn", "random", "by-speed"] = "in-turn"
    """Who has which: client id mod number; each at random; or slow devices the first, fast ones the last."""
    features: Count = 64
    """Length of the backbones' output, and of projections."""
    projection_hidden: Count = 128
    """Hidden units of the projection, if the protocol has one (4096 in MAPL's code)."""


class Point(_Initialised):
    """One vector, for quadratic data."""

    name: Literal["point"]


Model = Annotated[LogisticRegression | Mlp | Cnn | ResNet9 | Decoupled | Point, Field(discriminator="name")]
