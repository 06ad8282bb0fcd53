"""Read and write a message as its NamedTuple is annotated, so that each field is declared once.

A field is read by its type: a text, a flag, a whole number of at least 0, a list or object of
those, or another NamedTuple. ``Annotated[type, reader]`` names a reader for a field that allows
less, as in ``common/message_fields.py``: a function of the object, the key, and the path of the
object for its errors.

An absent field is empty, 0, false or None, and is refused where its reader refuses that. Unknown
fields are ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Callable,
    Generic,
    NamedTuple,
    Optional,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from templates.common.errors import Located
from templates.common.message_fields import INLINE, count_at, counts_at
from templates.common.validation import (
    flag_at,
    object_at,
    objects_at,
    text_at,
    text_map_at,
    texts_at,
)

Message = TypeVar("Message", bound=tuple[Any, ...])
Reader = Callable[[Mapping[str, Any], str, str], Any]


class _Field(NamedTuple):
    key: str
    read: Reader
    write: Optional[Callable[[Any], Any]]  # None: JSON has it as it is
    is_inline: bool
    is_required: bool
    absent: Any = None  # the value of one that is absent and not required


class MessageSchema(Generic[Message]):
    """The fields of one kind of message, and how each is read and written."""

    def __init__(self, kind: type[Message], where: str, given: Collection[str] = ()) -> None:
        """Take ``given`` fields as they are: the caller has put them into the object."""
        hints = get_type_hints(kind, include_extras=True)
        self._where = where
        self._make: Callable[[list[Any]], Message] = kind._make  # type: ignore[attr-defined]
        self._fields = [
            _field(key, Any if key in given else hint, where) for key, hint in hints.items()
        ]
        self._readers = [(f.key, f.read, f.is_required, f.absent) for f in self._fields]

    def read(self, raw: Mapping[str, Any]) -> Message:
        """Return the message in a JSON object; raise an error that names the wrong field."""
        where = self._where
        return self._make(
            [
                read(raw, key, where) if is_required or key in raw else absent
                for key, read, is_required, absent in self._readers
            ]
        )

    def write(self, message: Message) -> dict[str, Any]:
        """Return the message for JSON, without the fields that would be read as if absent."""
        raw: dict[str, Any] = {}
        for (key, _, write, is_inline, is_required, absent), value in zip(self._fields, message):
            if value == absent and not is_required:
                continue
            written = value if write is None else write(value)
            if is_inline:
                raw.update(written)
            else:
                raw[key] = written
        return raw


def _field(key: str, hint: Any, where: str) -> _Field:
    is_inline = INLINE in get_args(hint)
    if is_inline:
        schema: MessageSchema[Any] = MessageSchema(get_args(hint)[0], where)
        return _Field(key, lambda raw, key, where: schema.read(raw), schema.write, True, True)
    read, write = _reader_and_writer(hint, f"{where}.{key}")
    try:
        return _Field(key, read, write, False, False, read({}, key, where))
    except (Located, KeyError):
        return _Field(key, read, write, False, True)


def _reader_and_writer(hint: Any, path: str) -> tuple[Reader, Optional[Callable[[Any], Any]]]:
    """Return how a field of this type is read, and written if JSON does not have it as it is."""
    kind, args = get_origin(hint), get_args(hint)
    if kind is Annotated:
        return args[1], None
    if kind is Union:
        read, write = _reader_and_writer(args[0], path)
        return _or_none(read), write
    if kind is tuple and hasattr(args[0], "_fields"):
        return _messages(MessageSchema(args[0], path))
    if hasattr(hint, "_fields"):
        return _message(MessageSchema(hint, path))
    if hint not in _READERS:
        raise TypeError(f"{path}: no reader for {hint}")
    return _READERS[hint], None


def _message(schema: MessageSchema[Any]) -> tuple[Reader, Callable[[Any], Any]]:
    def read(raw: Mapping[str, Any], key: str, where: str) -> Any:
        return schema.read(object_at(raw, key, where))

    return read, schema.write


def _messages(schema: MessageSchema[Any]) -> tuple[Reader, Callable[[Any], Any]]:
    def read(raw: Mapping[str, Any], key: str, where: str) -> tuple[Any, ...]:
        return tuple(map(schema.read, objects_at(raw, key, where)))

    def write(messages: Sequence[Any]) -> list[dict[str, Any]]:
        return list(map(schema.write, messages))

    return read, write


def _or_none(read: Reader) -> Reader:
    def read_if_there(raw: Mapping[str, Any], key: str, where: str) -> Any:
        return None if raw.get(key) is None else read(raw, key, where)

    return read_if_there


def _flag_at(raw: Mapping[str, Any], key: str, where: str) -> bool:
    return bool(flag_at(raw, key, where))


def _texts_at(raw: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    return tuple(texts_at(raw, key, where))


def _given_at(raw: Mapping[str, Any], key: str, where: str) -> Any:
    return raw[key]


_READERS: dict[Any, Reader] = {
    str: text_at,
    bool: _flag_at,
    int: count_at,
    tuple[str, ...]: _texts_at,
    Mapping[str, str]: text_map_at,
    Mapping[str, int]: counts_at,
    Any: _given_at,
}
