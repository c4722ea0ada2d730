"""How much an Arrow stream takes once its buffers are unpacked, by what its messages say of them.

Pyarrow unpacks all buffers of a message at once, and does not tell their sizes before. A message begins with
a FlatBuffer (Arrow's Message.fbs), and a packed buffer with the bytes that it becomes.
"""

import struct

_RECORDS, _BUFFERS, _COMPRESSION = 2, 2, 3  # fields of Message, of RecordBatch
_DICTIONARY_DATA = 1  # the field of DictionaryBatch with its RecordBatch


def unpacked_bytes(content: bytes) -> int:
    """The bytes of all packed buffers of a stream, unpacked; 0 without any. Raises for damaged ones."""
    import pyarrow as pa

    total = 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(content)):
        head = message.metadata.to_pybytes()
        if message.body is None or message.type not in ("record batch", "dictionary"):
            continue
        records = _table(head, _uint32(head, 0), _RECORDS)
        if message.type == "dictionary":
            records = _table(head, records, _DICTIONARY_DATA)
        if not _field(head, records, _COMPRESSION):
            continue
        body, buffers = memoryview(message.body), _table(head, records, _BUFFERS)
        for place in range(_uint32(head, buffers)):
            start, length = struct.unpack_from("<qq", head, buffers + 4 + 16 * place)
            if length:  # -1 stands for one that is not packed
                total += max(0, *struct.unpack_from("<q", body, start))
    return total


def _table(head: bytes, table: int, field: int) -> int:
    """Where a field's table or list begins. Raises for a field that is not there."""
    if not (place := _field(head, table, field)):
        raise ValueError(f"a message of Arrow without its field {field}")
    return place + _uint32(head, place)


def _field(head: bytes, table: int, field: int) -> int:
    """Where a field of a table stands; 0 if it has none."""
    fields = table - struct.unpack_from("<i", head, table)[0]
    known = (struct.unpack_from("<H", head, fields)[0] - 4) // 2
    offset = struct.unpack_from("<H", head, fields + 4 + 2 * field)[0] if field < known else 0
    return table + offset if offset else 0


def _uint32(head: bytes, place: int) -> int:
    return int(struct.unpack_from("<I", head, place)[0])
