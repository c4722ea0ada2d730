"""Module of ResNet9."""

from torch import Tensor, nn


class ResidualNetwork(nn.Module):
    """Eight 3x3 convolutions in two residual and four plain blocks, then a linear layer.

    Channels are `width` times 1, 2, 4, 8. The last feature maps are reduced by a global maximum, so that
    28x28 and 32x32 images both fit; on 32x32 the maximum equals the usual 4x4 max pooling.
    """

    def __init__(self, channels: int, classes: int, width: int, groups: int) -> None:
        super().__init__()

        def block(before: int, after: int, pool: bool = False) -> nn.Sequential:
            layers = [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.GroupNorm(groups, after)]
            return nn.Sequential(*layers, nn.ReLU(), *([nn.MaxPool2d(2)] if pool else []))

        self.stem = nn.Sequential(block(channels, width), block(width, 2 * width, True))
        self.residual_1 = nn.Sequential(block(2 * width, 2 * width), block(2 * width, 2 * width))
        self.middle = nn.Sequential(block(2 * width, 4 * width, True), block(4 * width, 8 * width, True))
        self.residual_2 = nn.Sequential(block(8 * width, 8 * width), block(8 * width, 8 * width))
        self.head = nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits: [B, C, H, W] -> [B, K]."""
        x = self.stem(x)
        x = x + self.residual_1(x)
        x = self.middle(x)
        x = x + self.residual_2(x)
        return self.head(x.amax(dim=(2, 3)))
