"""Checks of foreign msgpack bytes before decoding: complete, not too deep, not too much memory.

A byte of msgpack may become a hundred bytes of objects, and a header of five may claim room for four billion
items. The memory of a decoded message stays below a fixed multiple of its length.
"""

import math

Buffer = bytes | memoryview

_DEPTH_MAX = 64  # levels of maps and arrays, and of extensions in one another
_BYTES_FREE = 2**20  # memory that any message may use, however short
_BYTES_PER_BYTE = 32  # memory for each byte of the message; objects without content take less
_ARRAY_BYTES, _MAP_BYTES, _EXTENSION_BYTES = 64, 240, 200  # of an empty object, roughly
_ITEM_BYTES, _PAIR_BYTES = 8, 80

_INVALID = 0xC1
# Total length of objects, by the first byte if it determines the length; 0 for the others.
_WHOLE = [1] * 0x80 + [0] * 0x20 + [1 + length for length in range(32)] + [0] * 0x20 + [1] * 0x20
for _first, _length in {0xC0: 1, 0xC2: 1, 0xC3: 1, 0xCA: 5, 0xCB: 9}.items():
    _WHOLE[_first] = _length
for _power in range(4):
    _WHOLE[0xCC + _power] = _WHOLE[0xD0 + _power] = 1 + 2**_power
# Width of the length that follows the first byte: of text and bytes, of extensions, of arrays, of maps.
_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_BYTES = (0xC4, 0xC5, 0xC6)
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4} | dict.fromkeys(range(0xD4, 0xD9), 0)
_ARRAYS = {0xDC: 2, 0xDD: 4} | dict.fromkeys(range(0x90, 0xA0), 0)
_MAPS = {0xDE: 2, 0xDF: 4} | dict.fromkeys(range(0x80, 0x90), 0)


class DecodeError(ValueError):
    """Error: bytes that are not an encoded message."""


class Budget:
    """Limit of the memory for decoding one message, including nested extensions."""

    def __init__(self, length: int, codes: frozenset[int]) -> None:
        self._left: float = _BYTES_FREE + _BYTES_PER_BYTE * length
        self._codes = codes

    def scan(self, data: Buffer, depth: int) -> None:
        """Raise DecodeError unless `data`, which is inside `depth` nested extensions, is one complete object.

        Also raises DecodeError for an object that is nested too deeply, would take too much memory, or
        contains extensions with other codes than `codes`.
        """
        if depth > _DEPTH_MAX:
            raise DecodeError(f"messages nested more than {_DEPTH_MAX} deep")
        self._spend(len(data))
        offset, end = 0, len(data)
        wanted, all_wanted = [1], 1  # objects still expected: of each open array or map, and in total
        while wanted:
            if not wanted[-1]:
                wanted.pop()
                continue
            if offset + all_wanted > end:  # each takes a byte at least
                raise DecodeError("the bytes end too early")
            wanted[-1] -= 1
            first = data[offset]
            offset, items = (offset + _WHOLE[first], 0) if _WHOLE[first] else self._look_closer(data, offset)
            all_wanted += items - 1
            if items:
                wanted.append(items)
                if len(wanted) > _DEPTH_MAX:
                    raise DecodeError(f"arrays and maps nested more than {_DEPTH_MAX} deep")
        if offset != end:
            raise DecodeError("the bytes end too early" if offset > end else f"{end - offset} bytes too many")

    def _look_closer(self, data: Buffer, offset: int) -> tuple[int, int]:
        """Return (end of the head, number of items) of a container at `offset`; (end, 0) of other objects."""
        first = data[offset]
        if first in _LENGTHS:
            width = _LENGTHS[first]
            return offset + 1 + width + _number(data, offset, width), 0
        if first in _EXTENSIONS:
            width = _EXTENSIONS[first]
            length = _number(data, offset, width) if width else 1 << (first - 0xD4)
            code = data[offset + 1 + width : offset + 2 + width]
            if code and code[0] not in self._codes:
                raise DecodeError(f"unknown extension of type {code[0]}")
            self._spend(_EXTENSION_BYTES)
            return offset + 2 + width + length, 0
        if first == _INVALID:
            raise DecodeError("no object starts with the byte c1")
        is_map = first in _MAPS
        width = _MAPS[first] if is_map else _ARRAYS[first]
        count = _number(data, offset, width) if width else first & 15
        self._spend(_MAP_BYTES + count * _PAIR_BYTES if is_map else _ARRAY_BYTES + count * _ITEM_BYTES)
        return offset + 1 + width, 2 * count if is_map else count

    def _spend(self, size_bytes: int) -> None:
        self._left -= size_bytes
        if self._left < 0:
            raise DecodeError("decoding would take too much memory for the message's length")


_UNLIMITED = Budget(0, frozenset(range(256)))
_UNLIMITED._left = math.inf


def end_of_object(data: Buffer, offset: int) -> int:
    """Return the end of the object that starts at `offset`, in scanned bytes."""
    wanted = 1
    while wanted:
        first = data[offset]
        whole = _WHOLE[first]
        offset, items = (offset + whole, 0) if whole else _UNLIMITED._look_closer(data, offset)
        wanted += items - 1
    return offset


def read_array_items(data: Buffer) -> list[Buffer] | None:
    """Return the bytes of each item of a scanned array; None if the object is not an array."""
    first = data[0]
    if first not in _ARRAYS:
        return None
    width = _ARRAYS[first]
    start, found = 1 + width, []
    for _ in range(_number(data, 0, width) if width else first & 15):
        end = end_of_object(data, start)
        found.append(data[start:end])
        start = end
    return found


def read_extension(data: Buffer) -> tuple[int, Buffer] | None:
    """Return code and content of a scanned extension; None if the object is not an extension."""
    if (width := _EXTENSIONS.get(data[0])) is None:
        return None
    return data[1 + width], data[2 + width :]


def read_bytes_content(data: Buffer) -> Buffer | None:
    """Return the content of a scanned bytes object; None for other objects."""
    return data[1 + _LENGTHS[data[0]] :] if data[0] in _BYTES else None


def _number(data: Buffer, offset: int, width: int) -> int:
    return int.from_bytes(data[offset + 1 : offset + 1 + width], "big")
