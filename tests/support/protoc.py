"""Compiles .proto texts, as a registry does."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc_tools
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

GOOGLE = Path(grpc_tools.__file__).parent / "_proto"


def compiled(texts: Mapping[str, str]) -> dict[str, FileDescriptorProto]:
    """Return the files of ``texts`` by name, and those of Google that they import."""
    with TemporaryDirectory() as folder:
        for name, text in texts.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        out = Path(folder, "out")
        words = ["protoc", f"-I{folder}", f"-I{GOOGLE}", "--include_imports", f"--descriptor_set_out={out}", *texts]
        assert protoc.main(words) == 0
        return {file.name: file for file in FileDescriptorSet.FromString(out.read_bytes()).file}


def base64_of(file: FileDescriptorProto) -> str:
    """Return a file as a registry gives it for ``?format=serialized``."""
    return base64.b64encode(file.SerializeToString()).decode()


def classes(files: Mapping[str, FileDescriptorProto]) -> Any:
    """Return what gives the class of a message's full name, for writing."""
    pool = descriptor_pool.DescriptorPool()
    for file in files.values():
        pool.Add(file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
