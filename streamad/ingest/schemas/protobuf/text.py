"""A .proto text to the descriptor of its file, for registries that do not compile it (protobuf.com, "Language
Specification").

Only what tells how bytes are read is taken: messages, fields, enums. Options, services and extensions are passed over,
and protobuf's own library resolves and checks names. Anybody may have registered the text: there is one pass over its
tokens, and no compiler. Editions are refused: there options tell how bytes are read.
"""

from __future__ import annotations

import re
from typing import NoReturn

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from streamad.errors import SchemaError
from streamad.ingest.decode_values import shown

_MAX_DEPTH = 32
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<token>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*|[0-9][\w.]*|[][{}()<>=;,:/+.-])""",
    re.DOTALL | re.VERBOSE | re.ASCII,
)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TYPES = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7, "bool": 8, "string": 9,
    "bytes": 12, "uint32": 13, "sfixed32": 15, "sfixed64": 16, "sint32": 17, "sint64": 18,
}  # fmt: skip
_GROUP, _MESSAGE = 10, 11
_LABELS = {"optional": 1, "required": 2, "repeated": 3}


def file_of(text: str) -> FileDescriptorProto:
    """Return the descriptor of a .proto text. Raises SchemaError."""
    return _Parser(_tokens(text)).file()


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            _refuse(f"what begins with {shown(text[at : at + 20])}")
        if match["token"] is not None:
            found.append(match["token"])
        at = match.end()
    return found


def _refuse(what: str) -> NoReturn:
    raise SchemaError(f"not a .proto text that is read here: {what}")


class _Parser:
    """Reads tokens one after the other."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0
        self._is_proto3 = False

    def file(self) -> FileDescriptorProto:
        """Return the file."""
        file = FileDescriptorProto()
        while self._at < len(self._tokens):
            word = self._next()
            if word in ("syntax", "edition"):
                self._expect("=")
                self._syntax(word, self._string(), file)
                self._expect(";")
            elif word == "package":
                file.package = self._next()
                self._expect(";")
            elif word == "import":
                if self._peek() in ("public", "weak") and self._next() == "public":
                    file.public_dependency.append(len(file.dependency))
                file.dependency.append(self._string())
                self._expect(";")
            elif word == "message":
                self._message(file.message_type.add(), 0)
            elif word == "enum":
                self._enum(file.enum_type.add())
            else:
                self._pass_over(word)
        return file

    def _syntax(self, word: str, name: str, file: FileDescriptorProto) -> None:
        if word == "edition" or name not in ("proto2", "proto3"):
            _refuse(f"{word} {shown(name)}; its registry must compile it (?format=serialized)")
        file.syntax = name
        self._is_proto3 = name == "proto3"

    def _pass_over(self, word: str) -> None:
        """Pass over what says nothing about bytes."""
        if word == "option":
            self._pass_to(";")
        elif word in ("service", "extend"):
            self._next()
            self._expect("{")
            self._pass_to("}")
        elif word != ";":
            _refuse(shown(word))

    def _message(self, message: DescriptorProto, depth: int) -> None:
        message.name = self._name()
        self._expect("{")
        self._body(message, depth)

    def _body(self, message: DescriptorProto, depth: int) -> None:
        if depth > _MAX_DEPTH:
            _refuse(f"messages nested more than {_MAX_DEPTH} deep")
        optional: list[FieldDescriptorProto] = []
        while (word := self._next()) != "}":
            if word == "message":
                self._message(message.nested_type.add(), depth + 1)
            elif word == "enum":
                self._enum(message.enum_type.add())
            elif word == "oneof":
                self._oneof(message, depth)
            elif word in ("reserved", "extensions"):
                self._pass_to(";")
            elif word in ("option", "extend", ";"):
                self._pass_over(word)
            else:
                field = self._field(message, word, depth)
                if field.proto3_optional:
                    optional.append(field)
        for field in optional:  # behind those that the text names
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _oneof(self, message: DescriptorProto, depth: int) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._name())
        self._expect("{")
        while (word := self._next()) != "}":
            if word in ("option", ";"):
                self._pass_over(word)
            elif word in _LABELS:
                _refuse(f"{word} inside a oneof")
            else:
                self._field(message, word, depth).oneof_index = index

    def _field(self, message: DescriptorProto, word: str, depth: int) -> FieldDescriptorProto:
        label = _LABELS.get(word)
        kind = word if label is None else self._next()
        if kind == "map":
            return self._map(message)
        field = message.field.add(label=label or 1)
        if kind == "group":
            inner = message.nested_type.add(name=self._name())
            field.name, field.type, field.type_name = inner.name.lower(), _GROUP, inner.name
            self._number(field)
            self._expect("{")
            self._body(inner, depth + 1)
            return field
        self._typed(field, kind)
        field.name = self._name()
        field.proto3_optional = self._is_proto3 and word == "optional"
        self._number(field)
        self._expect(";")
        return field

    def _map(self, message: DescriptorProto) -> FieldDescriptorProto:
        self._expect("<")
        key = self._next()
        self._expect(",")
        value = self._next()
        self._expect(">")
        name = self._name()
        entry = message.nested_type.add(name="".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        self._typed(entry.field.add(name="key", number=1, label=1), key)
        self._typed(entry.field.add(name="value", number=2, label=1), value)
        field = message.field.add(name=name, label=3, type=_MESSAGE, type_name=entry.name)
        self._number(field)
        self._expect(";")
        return field

    def _typed(self, field: FieldDescriptorProto, kind: str) -> None:
        if kind in _TYPES:
            field.type = _TYPES[kind]
        elif _NAME.fullmatch(kind.lstrip(".").split(".", 1)[0]) is None:
            _refuse(f"{shown(kind)} in place of a type")
        else:
            field.type_name = kind  # a message or an enum: its library finds out which

    def _number(self, field: FieldDescriptorProto) -> None:
        self._expect("=")
        field.number = self._whole(self._next())
        self._field_options()

    def _field_options(self) -> None:
        if self._peek() == "[":
            self._next()
            self._pass_to("]")

    def _enum(self, enum: EnumDescriptorProto) -> None:
        enum.name = self._name()
        self._expect("{")
        while (word := self._next()) != "}":
            if word in ("option", "reserved"):
                self._pass_to(";")
            elif word != ";":
                self._expect("=")
                sign = -1 if self._peek() == "-" and self._next() else 1
                enum.value.add(name=word, number=sign * self._whole(self._next()))
                self._field_options()
                self._expect(";")

    def _pass_to(self, end: str) -> None:
        """Pass over all up to ``end`` and over it; brackets inside belong together."""
        closing = {"{": "}", "[": "]", "(": ")"}
        waiting = [end]
        while waiting:
            token = self._next()
            if token == waiting[-1]:
                waiting.pop()
            elif token in closing:
                waiting.append(closing[token])

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            _refuse("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            _refuse(f"{shown(found)} where {token!r} should be")

    def _name(self) -> str:
        found = self._next()
        if _NAME.fullmatch(found) is None:
            _refuse(f"{shown(found)} in place of a name")
        return found

    def _string(self) -> str:
        found = self._next()
        if found[0] not in "\"'":
            _refuse(f"{shown(found)} in place of a text")
        return found[1:-1]

    @staticmethod
    def _whole(text: str) -> int:
        try:
            number = int(text, 8) if text[:1] == "0" and text.isdecimal() else int(text, 0)
        except ValueError:
            number = -1
        if not 0 <= number < 2**31:
            _refuse(f"{shown(text)} in place of a number")
        return number
