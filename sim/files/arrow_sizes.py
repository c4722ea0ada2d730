"""Unpacked size of an Arrow stream, from the headers of its messages.

Pyarrow unpacks all buffers of a message at once, without reporting their sizes first. A message starts with a
FlatBuffer (Arrow's Message.fbs); each packed buffer starts with its unpacked size.
"""

import struct

_RECORDS, _BUFFERS, _COMPRESSION = 2, 2, 3  # fields of Message, of RecordBatch
_DICTIONARY_DATA = 1  # the field of DictionaryBatch with its RecordBatch


def unpacked_bytes(content: bytes) -> int:
    """Return the unpacked size of all packed buffers of a stream. Raises various errors if it is damaged."""
    import pyarrow as pa

    total = 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(content)):
        head = message.metadata.to_pybytes()
        if message.body is None or message.type not in ("record batch", "dictionary"):
            continue
        records = _table_offset(head, _uint32(head, 0), _RECORDS)
        if message.type == "dictionary":
            records = _table_offset(head, records, _DICTIONARY_DATA)
        if not _field_offset(head, records, _COMPRESSION):
            continue
        body, buffers = memoryview(message.body), _table_offset(head, records, _BUFFERS)
        for index in range(_uint32(head, buffers)):
            start, length = struct.unpack_from("<qq", head, buffers + 4 + 16 * index)
            if length:  # -1 marks an unpacked buffer
                total += max(0, *struct.unpack_from("<q", body, start))
    return total


def _table_offset(head: bytes, table: int, field: int) -> int:
    """Return the offset of a field's table or list. Raises if the field is missing."""
    if not (offset := _field_offset(head, table, field)):
        raise ValueError(f"an Arrow message has no field {field}")
    return offset + _uint32(head, offset)


def _field_offset(head: bytes, table: int, field: int) -> int:
    """Return the offset of a table's field, 0 if it is missing."""
    fields = table - struct.unpack_from("<i", head, table)[0]
    known = (struct.unpack_from("<H", head, fields)[0] - 4) // 2
    offset = struct.unpack_from("<H", head, fields + 4 + 2 * field)[0] if field < known else 0
    return table + offset if offset else 0


def _uint32(head: bytes, offset: int) -> int:
    return int(struct.unpack_from("<I", head, offset)[0])
