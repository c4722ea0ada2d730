"""How a model that does not fit is refused."""

from sim.errors import UserError


def require(condition: bool, otherwise: str) -> None:
    """UserError, with the text `otherwise`, unless the condition holds."""
    if not condition:
        raise UserError(otherwise)


def image_shape(
    model: str, input_shape: tuple[int, ...], smallest: int, instead: str = "model.name = mlp"
) -> tuple[int, int, int]:
    """Channels, height and width of the inputs; UserError unless they are images, not below `smallest`^2.

    `model` is the setting that asks for images, `instead` one that does without.
    """
    require(
        len(input_shape) == 3 and min(input_shape[1:]) >= smallest,
        f"{model}: needs images (channels, height, width) of at least {smallest}x{smallest} "
        f"pixels, but the data's inputs have shape {input_shape}; use data.name = fashion-mnist, mnist, "
        f"cifar-10 or cifar-100, or {instead}",
    )
    channels, height, width = input_shape
    return channels, height, width
