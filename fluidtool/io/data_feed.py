"""Descriptions of data feeds in the text form of protobuf (`proto/data_feed.proto`)."""

from __future__ import annotations

from pathlib import Path

from fluidtool.errors import UnreadableError
from fluidtool.io.json_files import read_text
from fluidtool.proto.data_feed_pb2 import DataFeedDesc
from fluidtool.proto.protobuf import text_format


def read_description(path: str) -> DataFeedDesc:
    """The description in a file; `cat` is the pipe command of one that names none. Raises UnreadableError."""
    description = DataFeedDesc(pipe_command="cat")
    try:
        text_format.Parse(read_text(Path(path)), description)
    except text_format.ParseError as error:
        raise UnreadableError(f"{path} is not a DataFeedDesc in the text form of protobuf: {error}") from error
    if not description.IsInitialized():
        raise UnreadableError(f"{path} is not a DataFeedDesc: a slot has no name or no type")
    return description


def description_text(description: DataFeedDesc) -> str:
    """The text form; fields that were never set are left out."""
    return text_format.MessageToString(description)
