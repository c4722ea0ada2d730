import json
import traceback
from pathlib import Path

import torch

from sim.results.frames import own_frames

HERE = Path(__file__).name


def own() -> None:
    json.loads("{")  # fails in the standard library


def text_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_frames_of_libraries_are_left_out() -> None:
    try:
        own()
    except ValueError as error:
        shown, others = own_frames(text_of(error))
    lines = shown.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert [line.count(HERE) for line in lines if line.startswith("  File")] == [1, 1]
    assert any("fails in the standard library" in line for line in lines)
    assert lines[-1].startswith("json.decoder.JSONDecodeError: ")
    assert others == 3  # json.loads, decode, raw_decode


def test_what_an_error_is_from_is_shown_as_well() -> None:
    try:
        try:
            torch.zeros(2).reshape(3)
        except RuntimeError as first:
            raise ValueError("mine") from first
    except ValueError as error:
        shown, others = own_frames(text_of(error))
    assert shown.index("RuntimeError: ") < shown.index("direct cause") < shown.index("ValueError: mine")
    assert others == 0


def test_an_error_of_ours_is_shown_whole() -> None:
    text = 'Traceback (most recent call last):\n  File "<string>", line 1, in step\nKeyError: 1\n'
    assert own_frames(text) == (text, 0)
