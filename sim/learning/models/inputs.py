"""What models of images need of the data."""

from collections.abc import Sequence

from sim.errors import UserError
from sim.learning.data import IMAGE_DATASETS


def require_images(model: str, input_shape: tuple[int, ...], smallest: int, instead: str) -> None:
    """UserError unless samples are images [C, H, W] with sides of `smallest` pixels or more.

    `model` is the setting that asks for images, `instead` one that does without.
    """
    if len(input_shape) == 3 and min(input_shape[1:]) >= smallest:
        return
    raise UserError(
        f"{model}: needs images (channels, height, width) of at least {smallest}x{smallest} pixels, but the "
        f"data's inputs have shape {input_shape}; use data.name = {one_of(IMAGE_DATASETS)}, or {instead}"
    )


def one_of(words: Sequence[str]) -> str:
    """ "a, b or c"."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
